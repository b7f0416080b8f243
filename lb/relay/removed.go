package relay

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// member is a backend of a service.
type member struct {
	service string
	backend netip.AddrPort
}

// drains are the backends that have gone and whose flows are given some time
// (onBackendRemoved: drain).
type drains struct {
	mu      sync.Mutex // guards what follows
	pending map[member]*time.Timer
	closed  bool
	running sync.WaitGroup
}

func (d *drains) init() { d.pending = make(map[member]*time.Timer) }

// start calls end after a while unless the backend comes back before.
func (d *drains) start(m member, after time.Duration, end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.pending[m] != nil {
		return
	}
	d.pending[m] = time.AfterFunc(after, func() {
		d.mu.Lock()
		if d.closed || d.pending[m] == nil {
			d.mu.Unlock()
			return
		}
		delete(d.pending, m)
		d.running.Add(1)
		d.mu.Unlock()
		defer d.running.Done()
		end()
	})
}

// cancel forgets a backend that is back.
func (d *drains) cancel(m member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.pending[m]; t != nil {
		t.Stop()
		delete(d.pending, m)
	}
}

func (d *drains) close() {
	d.mu.Lock()
	d.closed = true
	for m, t := range d.pending {
		t.Stop()
		delete(d.pending, m)
	}
	d.mu.Unlock()
	d.running.Wait()
}

// programCleanup ends what belongs to backends and services that are gone, and
// removes what nothing uses any more.
func (r *Relay) programCleanup(_ context.Context, c store.Change) []store.Failure {
	reset := make(map[member]flow.Reason)
	for _, name := range c.Services {
		r.compare(name, c, reset)
	}
	r.endFlows(reset)
	for _, w := range r.workers {
		_ = w.loop.Call(func() {
			for _, name := range c.Services {
				w.udp.reconcile(name)
			}
		})
	}
	known := func(name string) bool { _, ok := c.To.Service(name); return ok }
	r.limits.forget(known)
	r.udpLimits.forget(known)

	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closing {
		r.cleanVIPsLocked(c) // last: what has just been ended still needs its route
	}
	return nil
}

// compare finds the backends that a service has lost and does what its policy
// says about their flows. A service that is gone has lost all of them.
func (r *Relay) compare(name string, c store.Change, reset map[member]flow.Reason) {
	from, had := c.From.Service(name)
	to, has := c.To.Service(name)
	if has {
		for _, b := range to.Pool {
			if b.State != lb.StateDown {
				r.drains.cancel(member{name, b.Address})
			}
		}
	}
	if !had {
		return
	}
	policy, reason := from.Service, flow.ReasonServiceRemoved
	if has {
		policy, reason = to.Service, flow.ReasonBackendRemoved
	}
	for _, b := range from.Pool {
		m := member{name, b.Address}
		if b.State == lb.StateDown || has && listed(to, b.Address) {
			continue
		}
		switch policy.OnBackendRemoved {
		case lb.Reset:
			reset[m] = reason
		case lb.Drain:
			r.drains.start(m, policy.DrainTimeout, func() {
				r.endFlows(map[member]flow.Reason{m: flow.ReasonDrainTimeout})
			})
		}
	}
}

// listed reports whether a backend is there: one that is down counts as absent.
func listed(s *store.Service, a netip.AddrPort) bool {
	b, ok := s.Backend(a)
	return ok && b.State != lb.StateDown
}

// endFlows resets the flows of the given backends, on whatever path they are.
func (r *Relay) endFlows(gone map[member]flow.Reason) {
	if len(gone) == 0 {
		return
	}
	r.barrier() // from here on no loop chooses one of them
	for _, rec := range r.registry.Records() {
		if why, ok := gone[member{rec.Service(), rec.Backend()}]; ok {
			rec.End(flow.ByBaton, why)
		}
	}
}
