package store

import (
	"net/netip"
	"sync"

	"github.com/baton-lb/baton/lb/sched"
)

// Health is a verdict about one backend of one service. The zero value is
// healthy.
type Health struct {
	Unhealthy bool
	Reason    string
	Ramp      uint8 // percent of its weight while it comes back, 1 to 99; 0 = all of it
}

// HealthOf is the verdict that b was published with.
func HealthOf(b *sched.Backend) Health {
	return Health{Unhealthy: b.Unhealthy, Reason: b.HealthReason, Ramp: b.Ramp}
}

// SetHealth tells what a probe or a failed connection says about a backend. It
// never waits for a writer: the verdict is published a moment later, together
// with those that came meanwhile (at once when Run is not running). It is kept
// as long as the backend is listed without a break; of a backend that is not
// listed it is forgotten.
func (s *Store) SetHealth(service string, backend netip.AddrPort, h Health) {
	if s.health.add(service, backend, h) {
		s.flushHealth()
	}
}

// flushHealth publishes the verdicts that are waiting.
func (s *Store) flushHealth() {
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := s.begin()
	for name, verdicts := range s.health.take() {
		if svc, ok := s.Snapshot().Service(name); ok && svc.differs(verdicts) {
			tx.rebuild(svc, verdicts)
		}
	}
	tx.commit()
}

// differs reports whether any verdict is news about a backend of the pool.
func (s *Service) differs(verdicts map[netip.AddrPort]Health) bool {
	for a, h := range verdicts {
		if b, ok := s.Backend(a); ok && HealthOf(b) != h {
			return true
		}
	}
	return false
}

// healthQueue collects verdicts, the last one per backend.
type healthQueue struct {
	wake chan struct{} // has one when there is something to take

	mu      sync.Mutex // guards what follows
	verdict map[string]map[netip.AddrPort]Health
	served  bool // somebody waits at wake
}

func (q *healthQueue) init() { q.wake = make(chan struct{}, 1) }

// add queues a verdict and reports whether the caller must flush it.
func (q *healthQueue) add(service string, backend netip.AddrPort, h Health) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.verdict == nil {
		q.verdict = make(map[string]map[netip.AddrPort]Health)
	}
	if q.verdict[service] == nil {
		q.verdict[service] = make(map[netip.AddrPort]Health)
	}
	q.verdict[service][backend] = h
	signal(q.wake)
	return !q.served
}

func (q *healthQueue) take() map[string]map[netip.AddrPort]Health {
	q.mu.Lock()
	defer q.mu.Unlock()
	v := q.verdict
	q.verdict = nil
	return v
}

// serve says whether somebody waits at wake.
func (q *healthQueue) serve(on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.served = on
}

// signal makes sure that there is something in a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
