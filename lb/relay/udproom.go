package relay

import (
	"slices"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/store"
)

// room reserves a place for one more session of a service. When there is none, the
// service's own oldest session makes room, so that a flood on one service is not
// felt by others; when descriptors are short, the oldest one of the service that
// has most. It reports false when there is nobody to make room.
//
// The oldest session may belong to another worker. That one ends it a moment
// later; each worker can be one above a limit for so long.
func (u *udpWorker) room(svc *store.Service, lim *limits) bool {
	budget := u.w.r.budget
	limit := int64(svc.Limits.UDPSessions)
	if limit == 0 {
		limit = budget.udpLimit()
	}
	// Two at a time, so that a limit that has become lower is reached.
	for n := 0; n < 2 && lim.sessions.Load() >= limit; n++ {
		if !u.evict(u.groups[svc.Name]) {
			u.evictElsewhere(svc.Name)
			break
		}
	}
	if !budget.takeUDP() {
		if !u.evict(u.bySize.first()) && !u.evictElsewhere("") {
			return false
		}
		budget.forceUDP()
	}
	lim.sessions.Add(1)
	return true
}

// giveBack gives up a place that room has reserved.
func (u *udpWorker) giveBack(lim *limits) {
	lim.sessions.Add(-1)
	u.w.r.budget.putUDP()
}

// evict ends the oldest session of a group, which may be nil. The one whose client
// has just sent something is not old.
func (u *udpWorker) evict(g *udpGroup) bool {
	if g == nil {
		return false
	}
	u.flush()
	g.idlest().close(flow.ByBaton, flow.ReasonEvicted)
	return true
}

// mostLooks is how many sessions are looked at to find one that is as idle as it
// seems.
const mostLooks = 32

// idlest is the oldest session of the group. Of those whose datagrams go beside
// their sockets it is not known at once that they are not.
func (g *udpGroup) idlest() *udpSession {
	for range mostLooks {
		s := g.oldest()
		s.look()
		if s == g.oldest() {
			return s
		}
	}
	return g.oldest()
}

// evictElsewhere has another worker end the oldest session of a service, or of its
// largest one when service is "". It reports false when there are no sessions.
func (u *udpWorker) evictElsewhere(service string) bool {
	u.passEviction(service, time.Now(), len(u.w.r.workers)-1)
	return u.w.r.budget.udp.Load() > 0
}

// passEviction asks the next worker, which asks the next one when it has none that
// began before.
func (u *udpWorker) passEviction(service string, before time.Time, workers int) {
	if workers == 0 {
		return
	}
	all := u.w.r.workers
	next := all[(slices.Index(all, u.w)+1)%len(all)]
	next.loop.Post(func() {
		g := next.udp.groups[service]
		if service == "" {
			g = next.udp.bySize.first()
		}
		if g == nil || g.oldest().rec.StartedAt().After(before) || !next.udp.evict(g) {
			next.udp.passEviction(service, before, workers-1)
		}
	})
}
