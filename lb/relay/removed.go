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
	end func([]member) // called when the time of some is up

	mu      sync.Mutex // guards what follows
	pending map[member]drain
	closed  bool
	running sync.WaitGroup
}

// drain is the time that one backend's flows still have.
type drain struct {
	due   time.Time
	timer *time.Timer
}

// drainSlack is how much too early a drain may end together with another: to end
// flows all of them are looked at, which is not to happen for each backend.
const drainSlack = 50 * time.Millisecond

func (d *drains) init(end func([]member)) {
	d.end = end
	d.pending = make(map[member]drain)
}

// start gives a backend's flows some time, unless it comes back before.
func (d *drains) start(m member, after time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.pending[m]; ok || d.closed {
		return
	}
	d.pending[m] = drain{time.Now().Add(after), time.AfterFunc(after, d.fire)}
}

// fire ends every drain whose time is up.
func (d *drains) fire() {
	due := d.take()
	if len(due) == 0 {
		return
	}
	defer d.running.Done()
	d.end(due)
}

func (d *drains) take() (due []member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now().Add(drainSlack)
	for m, p := range d.pending {
		if p.due.Before(now) {
			p.timer.Stop()
			delete(d.pending, m)
			due = append(due, m)
		}
	}
	if len(due) > 0 {
		d.running.Add(1)
	}
	return due
}

// cancel forgets a backend that is back.
func (d *drains) cancel(m member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p, ok := d.pending[m]; ok {
		p.timer.Stop()
		delete(d.pending, m)
	}
}

// close forgets them all, and waits for those that have begun to end.
func (d *drains) close() {
	d.mu.Lock()
	d.closed = true
	for _, p := range d.pending {
		p.timer.Stop()
	}
	clear(d.pending)
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
	if c.Synced {
		r.judgeKept(c.To, reset)
	}
	r.endFlows(reset)
	r.followUDP(c.Services)
	known := func(name string) bool { _, ok := c.To.Service(name); return ok }
	r.limits.forget(c.Services, known)
	r.udpLimits.forget(c.Services, known)

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
		r.judge(m, policy, reason, reset)
	}
}

// judge does with the flows of a backend that is gone what the policy says.
func (r *Relay) judge(m member, policy lb.Service, reason flow.Reason, reset map[member]flow.Reason) {
	switch policy.OnBackendRemoved {
	case lb.Reset:
		reset[m] = reason
	case lb.Drain:
		r.drains.start(m, policy.DrainTimeout)
	}
}

// listed reports whether a backend is there: one that is down counts as absent.
func listed(s *store.Service, a netip.AddrPort) bool {
	b, ok := s.Backend(a)
	return ok && b.State != lb.StateDown
}

// endDrained resets the flows of backends whose time is up.
func (r *Relay) endDrained(members []member) {
	gone := make(map[member]flow.Reason, len(members))
	for _, m := range members {
		gone[m] = flow.ReasonDrainTimeout
	}
	r.endFlows(gone)
}

// endFlows resets the flows of the given backends, on whatever path they are.
func (r *Relay) endFlows(gone map[member]flow.Reason) {
	if len(gone) == 0 {
		return
	}
	r.barrier() // from here on no loop chooses one of them
	for _, rec := range r.registry.Records() {
		why, ok := gone[member{rec.Service(), rec.Backend()}]
		if !ok || rec.Key().Proto() == flow.UDP && rec.View().Mode == flow.ModeProxy {
			continue // UDP sessions move: see followUDP
		}
		rec.End(flow.ByBaton, why)
	}
}
