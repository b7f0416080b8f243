package lb

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/baton-lb/baton/internal/flow"
)

// FieldError is one fault in a service. Field is a path as baton.yaml writes
// it, "frontends[1]" or "timeouts.connect", so that a source can point at the
// line.
type FieldError struct {
	Field   string
	Problem string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// ErrNotBuilt is wrapped by the fault of a service that asks for something that
// this version of Baton knows of but does not do.
var ErrNotBuilt = errors.New("not built yet")

// NotBuiltError is a FieldError for something that is not built yet.
type NotBuiltError struct{ FieldError }

func (e *NotBuiltError) Unwrap() []error { return []error{ErrNotBuilt, &e.FieldError} }

// faults collects what is wrong with one service.
type faults []error

func (f *faults) add(field, format string, args ...any) {
	*f = append(*f, &FieldError{field, fmt.Sprintf(format, args...)})
}

// Validate reports everything that is wrong with the service as joined
// *FieldErrors, or nil. What only shows beside other services (two of them with
// the same frontend) is for the store to find.
func (s *Service) Validate() error {
	var f faults
	s.validateName(&f)
	s.validateFrontends(&f)
	s.validateBackends(&f)
	s.validateClients(&f)
	s.validateWords(&f)
	s.validateNumbers(&f)
	s.validateHealth(&f)
	s.validateSteer(&f)
	s.validateBuilt(&f)
	return errors.Join(f...)
}

func (s *Service) validateName(f *faults) {
	switch {
	case s.Name == "":
		f.add("name", "is missing")
	case len(s.Name) > 253:
		f.add("name", "is longer than 253 characters")
	case !utf8.ValidString(s.Name) || strings.ContainsFunc(s.Name, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }):
		f.add("name", "%q has a space or a control character in it", s.Name)
	case s.Name[0] == '/' || s.Name[len(s.Name)-1] == '/':
		f.add("name", "%q begins or ends with a slash", s.Name)
	}
	last := s.Name[strings.LastIndexByte(s.Name, '/')+1:]
	if _, err := netip.ParseAddrPort(last); err == nil {
		f.add("name", "%q looks like IP:PORT, which `baton drain` could not tell from a backend", last)
	}
}

func (s *Service) validateFrontends(f *faults) {
	if len(s.Frontends) == 0 {
		f.add("frontends", "is empty: a service needs at least one")
	}
	seen := make(map[FrontendKey]int, len(s.Frontends))
	for i := range s.Frontends {
		fe, at := &s.Frontends[i], fmt.Sprintf("frontends[%d]", i)
		for a := range fe.addresses() {
			k := FrontendKey{fe.Proto, a}
			if first, dup := seen[k]; dup {
				f.add(at, "%s is listed already as frontends[%d]", k, first)
			}
			seen[k] = i
			if p := addressProblem(a); p != "" {
				f.add(at, "%s", p)
			}
		}
		validateFrontend(f, at, fe)
		if fe.Proto != flow.TCP && cmp.Or(fe.ClientAddress, s.ClientAddress) == ProxyV1 {
			f.add(at, "clientAddress proxy-v1 is for tcp only: use proxy-v2")
		}
	}
}

func validateFrontend(f *faults, at string, fe *Frontend) {
	switch fe.Proto {
	case flow.TCP, flow.UDP, flow.SCTP:
	default:
		f.add(at, "%s is no protocol that can be balanced: use tcp, udp or sctp", fe.Proto)
	}
	if len(fe.More) > 0 && fe.Proto != flow.SCTP {
		f.add(at, "several addresses are for sctp only")
	}
	if fe.Subset != AllBackends {
		word(f, at+".subset", fe.Subset, Subsets)
	}
	if fe.InsideSubset != AllBackends {
		word(f, at+".insideSubset", fe.InsideSubset, Subsets)
		if len(fe.Inside) == 0 {
			f.add(at+".insideSubset", "is for nobody: inside is empty")
		}
	}
	word(f, at+".whenNone", fe.WhenNone, []NonePolicy{Refuse, Drop})
	if fe.ClientAddress != "" {
		word(f, at+".clientAddress", fe.ClientAddress, ClientAddresses)
	}
	validatePrefixes(f, at+".allowSources", fe.AllowSources)
	validatePrefixes(f, at+".keepSources", fe.KeepSources)
	validatePrefixes(f, at+".inside", fe.Inside)
}

func (s *Service) validateBackends(f *faults) {
	for i := range s.Backends {
		b := &s.Backends[i]
		for a := range b.addresses() {
			p := addressProblem(a)
			if p == "" && a.Addr().IsUnspecified() {
				p = a.Addr().String() + " is no address to connect to"
			}
			if p != "" {
				f.add(fmt.Sprintf("backends[%d]", i), "%s", p)
			}
		}
		if b.MaxConnections < 0 {
			f.add(fmt.Sprintf("backends[%d].maxConnections", i), "is negative")
		}
		switch b.State {
		case StateReady, StateDrain, StateDown:
		default:
			f.add(fmt.Sprintf("backends[%d].state", i), "%q is unknown: use ready, drain or down", string(b.State))
		}
	}
}

func (s *Service) validateClients(f *faults) {
	validatePrefixes(f, "acceptProxy", s.AcceptProxy)
	validatePrefixes(f, "allow", s.Allow)
	validatePrefixes(f, "deny", s.Deny)
}

// validatePrefixes refuses what no client would ever be in.
func validatePrefixes(f *faults, field string, list []netip.Prefix) {
	for i, p := range list {
		switch {
		case !p.IsValid():
			f.add(fmt.Sprintf("%s[%d]", field, i), "is not IP/BITS, as 192.0.2.0/24")
		case p.Addr().Is4In6():
			f.add(fmt.Sprintf("%s[%d]", field, i), "%s is an IPv4 prefix in IPv6 clothes: write it as IPv4", p)
		}
	}
}
