package store

import (
	"cmp"
	"slices"
	"time"

	"github.com/baton-lb/baton/lb"
)

// FrontendState is how far a frontend has come:
//
//	pending → ready ⇄ failed
//	   └────────────────↑
type FrontendState string

// The states of a frontend.
const (
	Pending FrontendState = "pending" // not programmed yet
	Ready   FrontendState = "ready"   // programmed; without usable backends it refuses, as it should
	Failed  FrontendState = "failed"  // could not be programmed; tried again by itself
)

// Status is the state of one frontend, and what there is to say about it.
type Status struct {
	State  FrontendState
	Reason string
}

// FrontendStatus tells how a frontend is. The zero Status means that there is
// no such frontend.
func (s *Store) FrontendStatus(k lb.FrontendKey) Status {
	fe, ok := s.Snapshot().frontends.get(hashKey(k), k)
	if !ok {
		return Status{}
	}
	name := fe.Service.Name
	l := &s.loop
	l.mu.Lock()
	err := l.failureLocked(name, k)
	known, ok := l.done.frontends.get(hashKey(k), k)
	l.mu.Unlock()
	switch {
	case err != nil:
		return Status{Failed, err.Error()}
	case !ok || known.Service.Name != name:
		return Status{Pending, "not programmed yet"}
	}
	return Status{Ready, fe.remark()}
}

// remark is what is unusual about a frontend that works.
func (f *Frontend) remark() string {
	doing := "refusing"
	if f.WhenNone == lb.Drop {
		doing = "dropping"
	}
	switch {
	case !f.Usable():
		return "no usable backends: " + doing
	case f.Scheduler.Usable() == 0:
		return "no usable backends for clients outside: " + doing
	case f.inside.Usable() == 0:
		return "no usable backends for clients inside: " + doing
	case f.Scheduler.AllUnhealthy():
		return "all backends are unhealthy: using them all"
	}
	return ""
}

func (l *loop) failureLocked(service string, k lb.FrontendKey) error {
	for _, p := range l.programmers {
		for _, o := range [...]object{{service, k}, {service: service}} {
			if f := p.failed[o]; f != nil {
				return f.err
			}
		}
	}
	return nil
}

// Failures lists what could not be programmed and is to be tried again, by
// service.
func (s *Store) Failures() []Failure {
	l := &s.loop
	l.mu.Lock()
	var all []Failure
	for _, p := range l.programmers {
		for o, f := range p.failed {
			all = append(all, Failure{o.service, o.frontend, f.err})
		}
	}
	l.mu.Unlock()
	slices.SortFunc(all, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Frontend.String(), b.Frontend.String()))
	})
	return all
}

// Stats is what metrics show of a Store.
type Stats struct {
	Counts
	Revision   uint64 // of the snapshot
	Programmed uint64 // revision up to which everything has been programmed once
	Rounds     uint64 // of programming
	Failing    int    // objects that could not be programmed
	Last       Round  // the last round; its Start is zero before the first

	// Pending is how long the oldest revision that is not programmed has been
	// waiting; 0 = nothing waits.
	Pending time.Duration
}

// Stats copies the counters.
func (s *Store) Stats() Stats {
	l := &s.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	snap := s.Snapshot()
	st := Stats{
		Counts: snap.counts, Revision: snap.Revision, Programmed: l.done.Revision,
		Rounds: l.rounds, Failing: l.failing, Last: l.last,
	}
	if !l.waiting.IsZero() {
		st.Pending = time.Since(l.waiting)
	}
	return st
}

// OnProgrammed calls hook after every round of programming, on the goroutine of
// Run: it must be quick. It is how a histogram of Round.Duration is filled.
func (s *Store) OnProgrammed(hook func(Round)) {
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	s.loop.hooks = append(s.loop.hooks, hook)
}
