package relay

import (
	"net/netip"
	"slices"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/store"
)

// followChunk is how many sessions follow a change in one turn of their loop: to
// move one means a socket.
const followChunk = 64

// followUDP makes the sessions of changed services follow the snapshot, those too
// whose clients are silent. Each of them has done so by itself when its client
// sends: from the moment of a snapshot on not one datagram goes to an address that
// is no longer the service's. But those that the kernel carries it hears nothing of:
// theirs do until their turn comes here.
func (r *Relay) followUDP(services []string) {
	for _, w := range r.workers {
		var all []*udpSession
		_ = w.loop.Call(func() { all = w.udp.of(services) })
		for chunk := range slices.Chunk(all, followChunk) {
			_ = w.loop.Call(func() {
				for _, s := range chunk {
					s.catchUp()
				}
			})
		}
	}
}

// of lists the sessions of some services.
func (u *udpWorker) of(services []string) (all []*udpSession) {
	for _, name := range services {
		if g := u.groups[name]; g != nil {
			all = g.oneShot.appendTo(all)
			all = g.used.appendTo(all)
		}
	}
	return all
}

// catchUp makes the session follow the snapshot.
func (s *udpSession) catchUp() {
	if s.closed {
		return
	}
	fe, ok := s.u.w.r.find(s.u.w.r.store.Snapshot(), lb.FrontendKey{Proto: flow.UDP, Address: s.local})
	if !ok {
		s.close(flow.ByBaton, flow.ReasonServiceRemoved)
		return
	}
	s.follow(fe)
}

// follow makes the session one of its frontend as it has become: it moves or ends
// when it may not stay where it is, whatever the policy for connections is.
func (s *udpSession) follow(fe *store.Frontend) {
	switch {
	case fe.Service.Name != s.rec.Service():
		s.close(flow.ByBaton, flow.ReasonServiceRemoved)
		return
	case fe.Service.Revision <= s.fe.Service.Revision: // it has seen a newer one
		return
	}
	if !permitted(fe, s.client.Addr()) { // it never ends by itself while its client sends
		s.close(flow.ByBaton, flow.ReasonDenied)
		return
	}
	life, terms := s.life(), s.carryTerms()
	s.adopt(fe)
	if s.carryTerms() != terms {
		s.withdraw()
		s.planCarrying()
	}
	if s.life() != life {
		s.u.w.loop.Arm(&s.timer, s.left())
	}
	b, ok := mayStay(fe, s.backend.Address)
	if ok {
		s.backend = b
	}
	if ok && !sick(fe, b, s.u.w.r.inside(fe, s.client.Addr())) || s.move() || ok {
		return
	}
	s.close(flow.ByBaton, flow.ReasonBackendRemoved)
}

// move gives the session another backend. If there is none it stays where it is,
// and move reports false.
func (s *udpSession) move() bool {
	if s.choose(flow.ByRetry) == nil {
		return true
	}
	s.rec.Assign(flow.Assignment{Backend: s.backend.Address, Picked: flow.ByRetry, Load: s.backend.Load})
	return false
}

// mayStay finds a session's backend among those of its service. What subset its
// client may use by now is for new sessions: hints and places change whenever
// backends come and go. One that is down is as if it were not there; one that drains
// keeps its sessions.
func mayStay(fe *store.Frontend, a netip.AddrPort) (*sched.Backend, bool) {
	b, ok := fe.Service.Backend(a)
	return b, ok && b.State != lb.StateDown && lb.Selection{Family: fe.Selection(false).Family}.Has(b.Backend)
}

// sick reports whether a backend has failed while others have not. Its sessions
// move: their clients may never begin new ones.
func sick(fe *store.Frontend, b *sched.Backend, inside bool) bool {
	return b.Unhealthy && b.TakesNewIfHealthy() && !fe.For(inside).Allows(b)
}
