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

type (
	serviceEdit  = edit[string, *Service]
	frontendEdit = edit[lb.FrontendKey, *Frontend]
)

// enter puts a service and its frontends into tables.
func enter(services *serviceEdit, frontends *frontendEdit, svc *Service) {
	services.put(hashName(svc.Name), svc.Name, svc)
	for _, fe := range svc.FrontendSet {
		eachKey(fe.Frontend, func(hash uint64, k lb.FrontendKey) { frontends.put(hash, k, fe) })
	}
}

// leave takes the frontends of a service out of a table.
func leave(frontends *frontendEdit, svc *Service) {
	for _, fe := range svc.FrontendSet {
		eachKey(fe.Frontend, frontends.remove)
	}
}

// Counts is how much a snapshot holds.
type Counts struct {
	Services, Frontends, Backends int
	wildcards                     int // frontends at 0.0.0.0 or ::
}

// Frontend finds the frontend that a client has asked for: the one at this
// address, else the one at the wildcard address of the family (0.0.0.0, ::) and
// this port. One that is multihomed is found by each of its addresses. The key's
// address must not be an IPv4-mapped one. It neither locks nor allocates.
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
func (s *Snapshot) Frontends() iter.Seq[*Frontend] {
	return func(yield func(*Frontend) bool) {
		for svc := range s.Services() {
			for _, fe := range svc.FrontendSet {
				if !yield(fe) {
					return
				}
			}
		}
	}
}

// Sorted lists all services by name.
func (s *Snapshot) Sorted() []*Service {
	return slices.SortedFunc(s.Services(), func(a, b *Service) int { return cmp.Compare(a.Name, b.Name) })
}

// Len is the number of services.
func (s *Snapshot) Len() int { return s.counts.Services }

// Counts is how much the snapshot holds.
func (s *Snapshot) Counts() Counts { return s.counts }
