package store

import (
	"net/netip"
	"slices"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
)

// Service is a published service. It never changes: an update, a probe's
// verdict or a drain publishes another one under the same name.
type Service struct {
	lb.Service

	Source   string // name of the Source it came from
	Revision uint64 // of the first snapshot that has it like this

	// Pool has one entry for each address in Backends: for one that is listed
	// more than once, the entry that can do most (see better).
	Pool        []*sched.Backend
	FrontendSet []*Frontend // as in Frontends

	index      index
	schedulers []scheduler // one for each selection of its frontends
}

// scheduler is what chooses among the backends of a selection.
type scheduler struct {
	selection lb.Selection
	*sched.Scheduler
}

func (s *Service) is(name string) bool { return s.Name == name }

// Backend finds a backend of the pool by its address. It does not allocate.
func (s *Service) Backend(a netip.AddrPort) (*sched.Backend, bool) {
	if s == nil {
		return nil, false
	}
	return s.index.find(s.Pool, a)
}

// Frontend is one frontend of a published service. It never changes: a change
// of anything in its service makes another one.
type Frontend struct {
	*lb.Frontend // in Service.Frontends

	Service *Service
	// Scheduler chooses among the backends of the frontend's selection for clients
	// outside, inside (see For) for those inside: the same if there are none. Frontends
	// with the same selection share it.
	Scheduler *sched.Scheduler
	inside    *sched.Scheduler

	asked lb.FrontendKey // as in Frontend: the lookup then needs no other cache line
}

func (f *Frontend) is(k lb.FrontendKey) bool {
	if f.asked == k {
		return true
	}
	return len(f.More) > 0 && f.Proto == k.Proto && f.Address.Port() == k.Address.Port() &&
		slices.Contains(f.More, k.Address.Addr())
}

// eachKey calls do for every key that a frontend is found by: one, or one for
// each address of a multihomed one.
func eachKey(f *lb.Frontend, do func(hash uint64, k lb.FrontendKey)) {
	do(hashKey(f.FrontendKey), f.FrontendKey)
	for _, a := range f.More {
		k := lb.FrontendKey{Proto: f.Proto, Address: netip.AddrPortFrom(a, f.Address.Port())}
		do(hashKey(k), k)
	}
}

// For is what chooses for clients outside, or for those inside.
func (f *Frontend) For(inside bool) *sched.Scheduler {
	if inside {
		return f.inside
	}
	return f.Scheduler
}

// Usable reports whether new flows of any clients may go anywhere.
func (f *Frontend) Usable() bool { return f.Scheduler.Usable() > 0 || f.inside.Usable() > 0 }

// May reports whether clients outside, or inside, may use b at all.
func (f *Frontend) May(b *sched.Backend, inside bool) bool { return f.Selection(inside).Has(b.Backend) }

// scheduler returns the scheduler of a selection, or nil.
func (s *Service) scheduler(selection lb.Selection) *sched.Scheduler {
	if s == nil {
		return nil
	}
	for i := range s.schedulers {
		if s.schedulers[i].selection == selection {
			return s.schedulers[i].Scheduler
		}
	}
	return nil
}
