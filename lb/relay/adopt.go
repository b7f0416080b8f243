package relay

import (
	"net/netip"
	"sync"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/store"
)

// Adopt makes an offloaded connection of an earlier process count in the limits of
// its service until it ends, and keeps the route of the address that its client
// connected to. What the configuration has to say of it is seen to when every
// source has delivered.
func (r *Relay) Adopt(rec *flow.Record, frontend netip.AddrPort) {
	lim, client := r.limits.of(rec.Service()), rec.Key().Client().Addr()
	lim.enter(client)
	rec.WhenEnded(func() { lim.leave(client) })
	r.carried.hold(frontend.Addr(), rec)
}

// judgeKept decides about what is left of an earlier process once every source has
// delivered.
func (r *Relay) judgeKept(now *store.Snapshot, reset map[member]flow.Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.judged {
		r.judged = true
		r.judgeAdopted(now, reset)
	}
	if !r.inherit.holding && !r.closing {
		r.withdrawKeptLocked()
	}
}

// judgeAdopted finds the offloaded flows whose service or backend has gone while no
// process was there to see it.
func (r *Relay) judgeAdopted(now *store.Snapshot, reset map[member]flow.Reason) {
	for _, rec := range r.registry.Records() {
		v := rec.View()
		if v.State != flow.Offloaded || v.Protocol != flow.TCP || v.Mode != flow.ModeProxy {
			continue
		}
		m := member{v.Service, v.Backend}
		switch svc, ok := now.Service(v.Service); {
		case !ok:
			reset[m] = flow.ReasonServiceRemoved // and what its policy was nobody knows
		case !listed(svc, v.Backend):
			r.judge(m, svc.Service, flow.ReasonBackendRemoved, reset)
		}
	}
}

// carriedVIPs counts the connections at each address that have no socket any more:
// the kernel carries them. Their packets are taken before anybody asks for a route.
// But what is not theirs to take, as fragments, comes to this host then, and without
// a route would be sent on to where it came from.
//
// When the relay closes, the routes go, and those packets are forwarded as any that
// are not for this host: a route without a guard would open every port of the
// address, and the connections live without it.
type carriedVIPs struct {
	mu sync.Mutex // guards what follows
	at map[netip.Addr]int
}

// hold counts a flow until it ends.
func (c *carriedVIPs) hold(a netip.Addr, rec *flow.Record) {
	c.add(a, 1)
	rec.WhenEnded(func() { c.add(a, -1) })
}

func (c *carriedVIPs) add(a netip.Addr, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = make(map[netip.Addr]int)
	}
	if c.at[a] += n; c.at[a] == 0 {
		delete(c.at, a)
	}
}

func (c *carriedVIPs) has(a netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[a] > 0
}
