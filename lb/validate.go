package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

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
	s.validateWords(&f)
	s.validateNumbers(&f)
	s.validateBuilt(&f)
	return errors.Join(f...)
}

func (s *Service) validateName(f *faults) {
	switch {
	case s.Name == "":
		f.add("name", "is missing")
	case len(s.Name) > 253:
		f.add("name", "is longer than 253 characters")
	case strings.ContainsFunc(s.Name, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		f.add("name", "%q has a space or a control character in it", s.Name)
	}
	if _, err := netip.ParseAddrPort(s.Name); err == nil {
		f.add("name", "%q looks like IP:PORT, which `baton drain` could not tell from a backend", s.Name)
	}
}

func (s *Service) validateFrontends(f *faults) {
	if len(s.Frontends) == 0 {
		f.add("frontends", "is empty: a service needs at least one")
	}
	seen := make(map[FrontendKey]int, len(s.Frontends))
	for i := range s.Frontends {
		fe, at := &s.Frontends[i], fmt.Sprintf("frontends[%d]", i)
		if first, dup := seen[fe.FrontendKey]; dup {
			f.add(at, "%s is listed already as frontends[%d]", fe, first)
		}
		seen[fe.FrontendKey] = i
		validateAddress(f, at, fe.Address)
		if len(fe.More) > 0 && fe.Proto != flow.SCTP {
			f.add(at, "several addresses are for sctp only")
		}
	}
}

func (s *Service) validateBackends(f *faults) {
	for i := range s.Backends {
		b, at := &s.Backends[i], fmt.Sprintf("backends[%d]", i)
		validateAddress(f, at, b.Address)
		if b.Address.Addr().IsUnspecified() {
			f.add(at, "%s is no address to connect to", b.Address.Addr())
		}
		if b.MaxConnections < 0 {
			f.add(at+".maxConnections", "is negative")
		}
		if !slices.Contains([]BackendState{StateReady, StateDrain, StateDown}, b.State) {
			f.add(at+".state", "%q is unknown: use ready, drain or down", string(b.State))
		}
	}
}

func validateAddress(f *faults, at string, a netip.AddrPort) {
	switch {
	case !a.IsValid() || a.Port() == 0:
		f.add(at, "%s is not IP:PORT with a port that is not 0", a)
	case a.Addr().IsMulticast() || a.Addr() == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		f.add(at, "%s is a multicast or broadcast address", a.Addr())
	case a.Addr().Is4In6():
		f.add(at, "%s is an IPv4 address in IPv6 clothes: write %s", a.Addr(), a.Addr().Unmap())
	case a.Addr().Zone() != "":
		f.add(at, "%s has a zone, which is not supported", a.Addr())
	}
}

// word reports a value that is not in the list.
func word[T ~string](f *faults, field string, v T, known []T) {
	if slices.Contains(known, v) {
		return
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = string(k)
	}
	f.add(field, "%q is unknown: use %s", string(v), strings.Join(names, ", "))
}

func (s *Service) validateWords(f *faults) {
	word(f, "mode", s.Mode, []flow.Mode{flow.ModeProxy, flow.ModeSteer})
	word(f, "balance", s.Balance, Algorithms)
	word(f, "clientAddress", s.ClientAddress, ClientAddresses)
	word(f, "onBackendRemoved", s.OnBackendRemoved, RemovedPolicies)
	word(f, "offload.mode", s.Offload.Mode, OffloadModes)
	word(f, "offload.path", s.Offload.Path, OffloadPaths)
	word(f, "steer.choose", s.Steer.Choose, SteerChooses)
	word(f, "steer.whenAbsent", s.Steer.WhenAbsent, SteerAbsents)
	word(f, "sctp.mode", s.SCTP.Mode, SCTPModes)
	word(f, "sctp.multihoming", s.SCTP.Multihoming, Multihomings)
	if s.Affinity.By != NoAffinity {
		word(f, "affinity.by", s.Affinity.By, AffinityBys)
	}
	if s.Health.Probe != NoProbe {
		word(f, "health.probe", s.Health.Probe, Probes)
	}
}

func (s *Service) validateNumbers(f *faults) {
	positive := func(field string, d time.Duration) {
		if d <= 0 {
			f.add(field, "%s is not longer than 0", d)
		}
	}
	positive("timeouts.connect", s.Timeouts.Connect)
	positive("timeouts.idle", s.Timeouts.Idle)
	positive("timeouts.halfClosed", s.Timeouts.HalfClosed)
	positive("timeouts.udpIdle", s.Timeouts.UDPIdle)
	positive("timeouts.keepalive", s.Timeouts.KeepAlive)
	positive("timeouts.peerLost", s.Timeouts.PeerLost)
	if s.DrainTimeout < 0 {
		f.add("drainTimeout", "is negative")
	}
	if s.Affinity.Timeout < 0 {
		f.add("affinity.timeout", "is negative")
	}
	if s.Offload.AfterBytes < 0 {
		f.add("offload.afterBytes", "is negative")
	}
	if s.Offload.AfterAge < 0 {
		f.add("offload.afterAge", "is negative")
	}
	notNegative := func(field string, n int) {
		if n < 0 {
			f.add(field, "is negative: 0 is no limit")
		}
	}
	notNegative("limits.connections", s.Limits.Connections)
	notNegative("limits.perClient", s.Limits.PerClient)
	notNegative("limits.newPerSecond", s.Limits.NewPerSecond)
	notNegative("limits.udpSessions", s.Limits.UDPSessions)
}
