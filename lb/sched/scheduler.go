package sched

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"

	"github.com/baton-lb/baton/lb"
)

// Why there is nothing to choose.
var (
	// ErrNoBackend means that no backend may take new flows.
	ErrNoBackend = errors.New("no backend takes new flows")
	// ErrBackendsFull means that every backend left has MaxConnections open flows.
	ErrBackendsFull = errors.New("every backend is at its maxConnections")
	// ErrAllTried means that this flow has tried every backend.
	ErrAllTried = errors.New("every backend has been tried")
)

// Options configures a Scheduler. The zero value works.
type Options struct {
	Zone     string     // the balancer's own; "" = zones do not matter
	Previous *Scheduler // whose rotation goes on, by address; nil = none
	Seed     uint64     // of lb.Random, for tests; 0 = a different one each time
}

// Request is a flow that needs a backend.
type Request struct {
	Client netip.AddrPort
	Tried  []*Backend // never chosen again for this flow, by address
}

// Scheduler chooses among the backends of a service, or of a frontend that may
// use only some of them.
type Scheduler struct {
	// Immutable after New.
	algorithm lb.Algorithm
	rule      rule
	usable    int
	tiers     []tier // the best first
	seed      uint64

	draws atomic.Uint64 // of the seeded random numbers
}

// New makes a scheduler. An algorithm that it does not know is round-robin. It
// keeps neither the slice nor o.Previous.
func New(a lb.Algorithm, backends []*Backend, o Options) *Scheduler {
	s := &Scheduler{algorithm: a, seed: o.Seed}
	s.rule, s.usable = ruleFor(backends)
	s.tiers = makeTiers(backends, s.rule, s.usable, o.Zone)
	for i := range s.tiers {
		s.tiers[i].prepare(a, o.Previous)
	}
	return s
}

// Usable is how many backends new flows may go to, full ones included.
func (s *Scheduler) Usable() int { return s.usable }

// AllUnhealthy reports whether every backend that would take new flows is
// unhealthy, so that all of them are used.
func (s *Scheduler) AllUnhealthy() bool { return s.rule == unhealthy || s.rule == leavingSick }

// Allows reports whether new flows may go to b, one of the backends that New
// was given. It is TakesNew, but for the cases where there is nothing better.
func (s *Scheduler) Allows(b *Backend) bool { return s.rule.allows(b) }

// Pick chooses a backend, or returns ErrNoBackend, ErrBackendsFull or
// ErrAllTried as they are.
func (s *Scheduler) Pick(r Request) (*Backend, error) {
	for i := range s.tiers {
		if b := s.pickIn(&s.tiers[i], r); b != nil {
			return b, nil
		}
	}
	return nil, s.whyNone(r.Tried)
}

func (s *Scheduler) pickIn(t *tier, r Request) *Backend {
	f := filter{tried: r.Tried, limited: t.limited}
	switch s.algorithm {
	case lb.LeastConnections:
		return t.leastLoaded(f)
	case lb.Random:
		return t.bestOfTwo(f, s)
	case lb.SourceHash:
		return t.rendezvous(hashAddr(r.Client.Addr()), f)
	case lb.Maglev:
		return t.maglev(hashAddrPort(r.Client), f)
	}
	return t.rotation.next(t, f)
}

func (s *Scheduler) whyNone(tried []*Backend) error {
	if s.usable == 0 {
		return ErrNoBackend
	}
	for i := range s.tiers {
		for _, b := range s.tiers[i].backends {
			if !wasTried(b, tried) {
				return ErrBackendsFull
			}
		}
	}
	return ErrAllTried
}

// rand is a random number, reproducible when there is a seed.
func (s *Scheduler) rand() uint64 {
	if s.seed == 0 {
		return rand.Uint64()
	}
	return mix(s.seed + s.draws.Add(1)*golden)
}

// randN is a random number below n.
func (s *Scheduler) randN(n uint64) uint64 { return scale(s.rand(), n) }
