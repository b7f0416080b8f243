package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/baton-lb/baton/lb"
)

// Warning is something that a configuration may say and hardly means.
type Warning struct {
	Service  string
	Frontend lb.FrontendKey // zero = the whole service
	Text     string
}

func (w Warning) String() string { return w.Text }

// about names the object, for who shows no line.
func (w Warning) about() string { return "service " + w.Service + ": " }

// Static finds warnings without looking at a host.
func Static(c Config) []Warning {
	frontends := make(map[netip.AddrPort]string)
	for i := range c.Services {
		for _, fe := range c.Services[i].Frontends {
			frontends[fe.Address] = c.Services[i].Name
		}
	}
	var all []Warning
	for i := range c.Services {
		s := &c.Services[i]
		add := func(format string, args ...any) {
			all = append(all, Warning{Service: s.Name, Text: fmt.Sprintf(format, args...)})
		}
		warnBackends(s, add)
		warnLoops(s, frontends, add)
		warnSources(s, c.SourceAddresses, add)
		warnClients(s, add)
	}
	return all
}

type addWarning func(format string, args ...any)

func warnBackends(s *lb.Service, add addWarning) {
	if len(s.Backends) == 0 {
		add("has no backends: its clients are refused")
		return
	}
	usable := func(b lb.Backend) bool { return b.State == lb.StateReady && b.Weight > 0 }
	if !slices.ContainsFunc(s.Backends, usable) {
		add("none of its backends takes new flows: its clients are refused")
	}
	times := make(map[netip.AddrPort]int)
	for _, b := range s.Backends {
		if times[b.Address]++; times[b.Address] == 2 {
			add("lists backend %s more than once: it is one backend, as the entry says that lets it do most", b.Address)
		}
	}
}

// warnLoops finds backends that are frontends themselves.
func warnLoops(s *lb.Service, frontends map[netip.AddrPort]string, add addWarning) {
	for _, b := range s.Backends {
		switch owner, ok := frontends[b.Address]; {
		case ok && owner == s.Name:
			add("backend %s is a frontend of the same service: connections go round in a circle", b.Address)
		case ok:
			add("backend %s is a frontend of service %s", b.Address, owner)
		}
	}
}

// warnSources finds backends of a family for which there is no source address.
func warnSources(s *lb.Service, sources []netip.Addr, add addWarning) {
	if len(sources) == 0 {
		return
	}
	for _, b := range s.Backends {
		same := func(a netip.Addr) bool { return a.Is4() == b.Address.Addr().Is4() }
		if !slices.ContainsFunc(sources, same) {
			add("backend %s: source.addresses has none of its address family", b.Address)
			return
		}
	}
}

// warnClients finds allow lists that deny makes empty.
func warnClients(s *lb.Service, add addWarning) {
	covered := func(p netip.Prefix) bool {
		return slices.ContainsFunc(s.Deny, func(d netip.Prefix) bool {
			return d.Bits() <= p.Bits() && d.Contains(p.Addr())
		})
	}
	if len(s.Allow) > 0 && !slices.ContainsFunc(s.Allow, func(p netip.Prefix) bool { return !covered(p) }) {
		add("deny covers all of allow: no client may connect")
	}
}
