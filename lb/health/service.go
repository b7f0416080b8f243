package health

import (
	"net/netip"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// check is how the backends of a service are probed. A change makes another
// one, so that the answer to an old question is told by its pointer.
type check struct {
	lb.HealthCheck
	statuses lb.StatusRanges
}

func newCheck(h lb.HealthCheck) *check {
	if h.Probe == lb.NoProbe {
		return nil
	}
	// Validated with the service: what cannot be read there is never published.
	statuses, _ := lb.ParseStatusRanges(h.Status)
	return &check{h, statuses}
}

// asksLike reports whether c asks what the settings h ask for, and how often.
func (c *check) asksLike(h lb.HealthCheck) bool {
	if c == nil {
		return h.Probe == lb.NoProbe
	}
	h.SlowStart = c.SlowStart
	return c.HealthCheck == h
}

// service is what is known about the backends of a service. Checker.mu guards
// it and its backends.
type service struct {
	published *store.Service
	check     *check // nil = none
	slowStart time.Duration

	// backends that are probed or in trouble; about the others nothing is known.
	backends map[netip.AddrPort]*backend

	candidates int // backends that would take new flows if they were healthy
	ill        int // of those: that do not, because they are unhealthy
	ejected    int // of those: that are ejected
}

// backend is what is known about one backend.
type backend struct {
	service   *service
	address   netip.AddrPort
	load      *flow.Load // set once a connection has failed
	candidate bool       // see service.candidates
	gone      bool       // it is not in service.backends any more

	probing probing
	ejected ejection
	ramp    ramp
	told    store.Health // what the store was told last
}

// count counts the backends anew, after a change of anything about them.
func (s *service) count() {
	s.candidates, s.ill, s.ejected = 0, 0, 0
	for _, b := range s.backends {
		b.candidate = false
	}
	for _, p := range s.published.Pool {
		if !p.TakesNewIfHealthy() {
			continue
		}
		s.candidates++
		if b := s.backends[p.Address]; b != nil {
			b.candidate = true
			s.add(b, 1)
		}
	}
}

// add counts one candidate in or out.
func (s *service) add(b *backend, n int) {
	if !b.candidate {
		return
	}
	if b.told.Unhealthy {
		s.ill += n
	}
	if b.ejected.now {
		s.ejected += n
	}
}

// allIll reports whether every backend that would take new flows is unhealthy.
func (s *service) allIll() bool { return s.candidates > 0 && s.ill == s.candidates }
