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

	index index
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
	// Scheduler chooses among the backends of the frontend's selection; frontends
	// with the same one share it.
	Scheduler *sched.Scheduler

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

// scheduler returns the scheduler of a selection, or nil.
func (s *Service) scheduler(selection lb.Selection) *sched.Scheduler {
	if s == nil {
		return nil
	}
	for _, fe := range s.FrontendSet {
		if fe.Selection(false) == selection {
			return fe.Scheduler
		}
	}
	return nil
}
