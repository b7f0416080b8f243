package flow

import (
	"net/netip"
	"sync/atomic"
)

// Streak is how a backend has done lately.
type Streak struct {
	Failures uint32 // attempts to reach it that have failed since it last answered
	Answered uint32 // how many such runs it has ended by an answer
	TimedOut bool   // the last failure took its whole time
}

// streak is a Streak, Answered in the upper half. The data path adds to it
// without a lock.
type streak struct{ v atomic.Uint64 }

func (s *streak) failed() { s.v.Add(1) }

func (s *streak) answered() {
	for {
		v := s.v.Load()
		if uint32(v) == 0 || s.v.CompareAndSwap(v, (v>>32+1)<<32) {
			return
		}
	}
}

func (s *streak) load() Streak {
	v := s.v.Load()
	return Streak{Failures: uint32(v), Answered: uint32(v >> 32)}
}

// failingBuffer is how many backends may wait for the reader of Failing.
const failingBuffer = 1024

// Failing delivers the Load of a backend when it could not be reached: once
// until its Streak is read, however often it fails meanwhile. There may be one
// reader. What does not fit into the channel is told at the next failure, so a
// reader that is late or missing costs the data path nothing.
func (r *Registry) Failing() <-chan *Load { return r.failing }

// failed counts a failure of l's backend, and tells whoever reads Failing. It
// never waits.
func (r *Registry) failed(l *Load, why DialFailure) {
	l.failures.Add(1)
	if timedOut := why == DialTimeout; l.timedOut.Load() != timedOut {
		l.timedOut.Store(timedOut)
	}
	l.streak.failed()
	if l.told.Swap(true) {
		return
	}
	select {
	case r.failing <- l:
	default:
		l.told.Store(false)
	}
}

// Streak reads how the backend has done lately, and has its next failure told
// by Registry.Failing.
func (l *Load) Streak() Streak {
	l.told.Store(false) // first: a failure from here on is told again
	s := l.streak.load()
	s.TimedOut = l.timedOut.Load()
	return s
}

// Answered ends the backend's run of failures: it has sent something on a flow that
// was established long ago.
func (l *Load) Answered() { l.streak.answered() }

// Service is the name of the service that the Load belongs to.
func (l *Load) Service() string { return l.key.service }

// Backend is the address of the backend that the Load belongs to.
func (l *Load) Backend() netip.AddrPort { return l.key.backend }
