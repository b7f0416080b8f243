package lb

import (
	"fmt"
	"iter"
	"net/netip"
	"strings"

	"github.com/baton-lb/baton/internal/flow"
)

// FrontendKey is what a client asks for. It is comparable and keys the lookup
// of the data path.
type FrontendKey struct {
	Proto   flow.Proto
	Address netip.AddrPort
}

// String writes the URL form: "tcp://10.96.0.10:80".
func (k FrontendKey) String() string { return k.Proto.String() + "://" + k.Address.String() }

// Frontend is one address and port at which a service is reached.
type Frontend struct {
	FrontendKey
	More []netip.Addr // further addresses of a multihomed SCTP frontend

	Subset        Subset         // which of the service's backends this frontend may use
	SameFamily    bool           // and of these only those with an address of the frontend's own family
	WhenNone      NonePolicy     // what clients get when there is none
	AllowSources  []netip.Prefix // clients of this frontend; empty = all. On top of Service.Allow
	ClientAddress ClientAddress  // "" = the service's
	KeepSources   []netip.Prefix // clients whose address is kept by Transparent, others are masked; empty = all

	// Inside are clients that use InsideSubset in place of Subset, and with them
	// the host's own addresses. Empty = all clients are outside, the host too.
	Inside       []netip.Prefix
	InsideSubset Subset
}

// Selection is what clients outside may use of the service's backends, or those
// inside.
func (f *Frontend) Selection(inside bool) Selection {
	s := Selection{Subset: f.Subset}
	if inside {
		s.Subset = f.InsideSubset
	}
	if f.SameFamily {
		s.Family = FamilyOf(f.Address.Addr())
	}
	return s
}

// addresses yields all addresses of the frontend with its port.
func (f *Frontend) addresses() iter.Seq[netip.AddrPort] { return withMore(f.Address, f.More) }

// String writes the URL form, with further addresses after a "|".
func (f Frontend) String() string {
	if len(f.More) == 0 {
		return f.FrontendKey.String()
	}
	var b strings.Builder
	b.WriteString(f.Proto.String() + "://" + hostOf(f.Address.Addr()))
	for _, a := range f.More {
		b.WriteString("|" + hostOf(a))
	}
	fmt.Fprintf(&b, ":%d", f.Address.Port())
	return b.String()
}

// ParseFrontend reads "tcp://10.96.0.10:80", "udp://[fd96::10]:53" or, for a
// multihomed SCTP frontend, "sctp://10.0.0.1|10.1.0.1:3868".
func ParseFrontend(s string) (Frontend, error) {
	const want = "want PROTOCOL://IP:PORT, as tcp://10.96.0.10:80 or tcp://[fd96::10]:80"
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return Frontend{}, fmt.Errorf("frontend %q: %s", s, want)
	}
	proto, err := flow.ParseProto(scheme)
	if err != nil {
		return Frontend{}, fmt.Errorf("frontend %q: %w", s, err)
	}
	addrs := strings.Split(rest, "|")
	last := addrs[len(addrs)-1]
	ap, err := parseAddrPort(last)
	if err != nil {
		return Frontend{}, fmt.Errorf("frontend %q: %w; %s", s, err, want)
	}
	f := Frontend{FrontendKey: FrontendKey{Proto: proto, Address: ap}}
	if len(addrs) == 1 {
		return f, nil
	}
	all := make([]netip.Addr, 0, len(addrs))
	for _, host := range addrs[:len(addrs)-1] {
		a, err := parseHost(host)
		if err != nil {
			return Frontend{}, fmt.Errorf("frontend %q: address %q is not an IP address", s, host)
		}
		all = append(all, a)
	}
	all = append(all, ap.Addr())
	f.Address = netip.AddrPortFrom(all[0], ap.Port())
	f.More = all[1:]
	return f, nil
}
