package store

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"github.com/baton-lb/baton/lb"
)

// Snapshot is all services at one revision. It never changes; who wants to know
// of changes is a Programmer.
type Snapshot struct {
	Revision uint64 // grows by one with every snapshot published; 0 = nothing yet

	services  table[string, *Service]
	frontends table[lb.FrontendKey, *Frontend]
	counts    Counts
}

// Counts is how much a snapshot holds.
type Counts struct {
	Services, Frontends, Backends int
	wildcards                     int // frontends at 0.0.0.0 or ::
}

// Frontend finds the frontend that a client has asked for: the one at this
// address, else the one at the wildcard address of the family (0.0.0.0, ::) and
// this port. It neither locks nor allocates.
func (s *Snapshot) Frontend(k lb.FrontendKey) (*Frontend, bool) {
	fe, ok := s.frontends.get(hashKey(k), k)
	if ok || s.counts.wildcards == 0 {
		return fe, ok
	}
	any := netip.IPv4Unspecified()
	if k.Address.Addr().Is6() {
		any = netip.IPv6Unspecified()
	}
	k.Address = netip.AddrPortFrom(any, k.Address.Port())
	return s.frontends.get(hashKey(k), k)
}

// Service finds a service by name. It neither locks nor allocates.
func (s *Snapshot) Service(name string) (*Service, bool) {
	return s.services.get(hashName(name), name)
}

// Services yields all services, in no order.
func (s *Snapshot) Services() iter.Seq[*Service] { return s.services.all }

// Frontends yields all frontends, in no order.
func (s *Snapshot) Frontends() iter.Seq[*Frontend] { return s.frontends.all }

// Sorted lists all services by name.
func (s *Snapshot) Sorted() []*Service {
	return slices.SortedFunc(s.Services(), func(a, b *Service) int { return cmp.Compare(a.Name, b.Name) })
}

// Len is the number of services.
func (s *Snapshot) Len() int { return s.counts.Services }

// Counts is how much the snapshot holds.
func (s *Snapshot) Counts() Counts { return s.counts }
