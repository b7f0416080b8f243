package steer

import (
	"time"

	"github.com/baton-lb/baton/lb"
)

// Of short connections among many nobody is told until they are over (program.TellAll), so that records do not count all that are
// open. The program does. What it counts and records do not is planned at the backend, for algorithms that ask how much it has.

// weighShare: at most one part in so many of the time is spent with it.
const weighShare = 20

// weighs reports whether a service's choices depend on how many flows backends have.
func (w *wanted) weighs() bool {
	if w.balance == lb.LeastConnections || w.balance == lb.Random {
		return true
	}
	for _, b := range w.backends {
		if b.MaxConnections > 0 {
			return true
		}
	}
	return false
}

// weigh has the choices that come next know of flows without a record.
func (v *service) weigh() {
	began := time.Now()
	if !v.now.weighs() || began.Before(v.weighNext) {
		return
	}
	v.s.flows.mu.Lock()
	for _, b := range v.backends {
		b.unseen(v.s.o.Program.Open(b.told.ID) - int64(v.s.flows.byBackend[b.told.ID]))
	}
	v.s.flows.mu.Unlock()
	v.weighNext = began.Add(weighShare * time.Since(began))
}

// unseen has so many flows counted that have no record.
func (b *backend) unseen(n int64) {
	n = max(n, 0)
	b.load.Plan(n - b.hidden)
	b.hidden = n
}
