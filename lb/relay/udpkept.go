package relay

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/lb/pick"
	"github.com/baton-lb/baton/lb/relay/datagram"
	"github.com/baton-lb/baton/lb/store"
)

// udpLeg is a client of a frontend as its datagrams name both.
type udpLeg struct{ client, frontend netip.AddrPort }

// keptSessions are UDP sessions that carriers have carried since before this
// process, and that have no session object yet. Relay.mu guards them.
//
//	Keep → pending — its frontend's sockets open → a session again, its datagrams
//	          |                                    go on beside its socket
//	          └— all sources have delivered, and there is no such frontend or
//	             backend, or the source port is taken → withdrawn
//
// A client whose session was withdrawn begins it anew with its next datagram.
type keptSessions map[udpLeg]handoff.Kept

// Keep goes on with sessions that an offloader has carried since before this process.
// With an Inheritance it must be called before Begin.
func (r *Relay) Keep(all []handoff.Kept) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keepLocked(all)
	if r.closing || r.inherit.holding {
		return
	}
	r.restoreKeptLocked(func(l *udpListener) bool { return true })
	if r.judged {
		r.withdrawKeptLocked()
	}
}

func (r *Relay) keepLocked(all []handoff.Kept) {
	if len(all) > 0 && r.kept == nil {
		r.kept = make(keptSessions, len(all))
	}
	for _, k := range all {
		r.kept[udpLeg{k.Client, k.Frontend}] = k
	}
}

// restoreKeptLocked makes sessions of those whose frontend has its sockets and is
// ready. Which of several sockets the kernel gives a client's datagrams to is not
// known: see strays.
func (r *Relay) restoreKeptLocked(ready func(*udpListener) bool) {
	if len(r.kept) == 0 {
		return
	}
	snapshot := r.store.Snapshot()
	next := 0
	for leg, k := range r.kept {
		fe, ok := snapshot.Frontend(lb.FrontendKey{Proto: flow.UDP, Address: k.Frontend})
		if !ok || fe.Service.Name != k.Service {
			continue
		}
		l := r.listeners.udp[fe.FrontendKey]
		if l == nil || !ready(l) {
			continue
		}
		loop := next % len(r.workers)
		next++
		_ = r.workers[loop].loop.Call(func() {
			if s := l.socks[loop]; s != nil && !s.closed && s.keep(fe, &k) {
				delete(r.kept, leg)
			}
		})
	}
}

// withdrawKeptLocked gives up those that have not become sessions.
func (r *Relay) withdrawKeptLocked() {
	for leg, k := range r.kept {
		r.giveUp(&k)
		delete(r.kept, leg)
	}
}

// giveUp closes the way of a session that cannot go on as it is. Its client goes on
// under the same name.
func (r *Relay) giveUp(k *handoff.Kept) {
	r.saved.add(savedOf(k), k.Carrier.Withdraw())
}

// savedOf is a kept session as the file would have it, without what its carrier has
// carried.
func savedOf(k *handoff.Kept) savedSession {
	return savedSession{
		ID: k.ID, StartedAt: k.StartedAt, Peer: k.Client, Frontend: k.Frontend, Backend: k.Backend, Source: k.Source,
		savedCounters: saveCounters(k.Base), Carried: true,
	}
}

// keep makes a session of a kept one, with a socket at the same source port. It
// reports false when that cannot be.
func (u *udpSocket) keep(fe *store.Frontend, k *handoff.Kept) bool {
	r := u.w.r
	c := udpClient{peer: k.Client, client: k.Client, local: k.Frontend, asked: k.Frontend}
	dial := udpTo
	if k.Source.Addr() == k.Client.Addr() {
		dial = udpFrom
	} else if !r.sources.has(k.Source, k.Backend.Addr()) {
		return false
	}
	if !u.mayGoOn(fe, &c, k.Backend) {
		return false
	}
	fd, _, err := dial(k.Backend, k.Source)
	if err != nil {
		return false
	}
	e := savedOf(k)
	if file, ok := r.saved.take(c.key(), u.w.loop.Now(), notAgain); ok && file.ID == k.ID {
		e.raise(file.own()) // its socket has carried datagrams too
	}
	s := u.goOn(fe, &c, &e, k, fd)
	if s == nil {
		unix.Close(fd)
		return false
	}
	if len(r.workers) > 1 {
		r.strays.add(s)
	}
	return true
}

// mayGoOn reports whether a session of an earlier process can be as it was.
func (u *udpSocket) mayGoOn(fe *store.Frontend, c *udpClient, backend netip.AddrPort) bool {
	_, ok := mayStay(fe, backend)
	return ok && u.sessions[c.key()] == nil && permitted(fe, c.client.Addr()) &&
		!contains(fe.Service.AcceptProxy, c.peer.Addr()) && !c.peer.Addr().IsLinkLocalUnicast()
}

// goOn makes a session of an earlier process one of this one, with its socket, and
// with its way beside that when k is not nil. It returns nil when that cannot be.
func (u *udpSocket) goOn(fe *store.Frontend, c *udpClient, e *savedSession, k *handoff.Kept, fd int) *udpSession {
	w := u.w
	b, _ := mayStay(fe, e.Backend)
	lim := w.r.udpLimits.of(fe.Service.Name)
	lim.enter(c.client.Addr()) // it has been admitted
	if w.udp.prepare(); !w.udp.room(fe.Service, lim) {
		lim.leave(c.client.Addr())
		return nil
	}
	s := u.newSession(fe, *c, datagram.NewName(c.peer))
	s.carrying.proven, s.carrying.before = e.Carried, e.counters()
	choice := pick.Choice{Backend: b, Picked: flow.ByAffinity}
	spec := e.spec(fe, c)
	if k != nil {
		s.goBeside(k, &spec)
		choice.Picked = k.Picked
		spec.Backend, spec.Picked, spec.Load = b.Address, k.Picked, b.Load
	}
	s.record(spec, lim)
	if k == nil {
		s.rec.Attach(flow.PathUserspace, s)
	}
	if !w.r.picker.Commit(s.rec, fe, choice, w.loop.Now()) || w.loop.AddReader(fd, s) != nil {
		s.fails(lim, unix.ENOMEM, 0)
		return nil
	}
	s.adopt(fe)
	s.fd, s.backend, s.source = fd, b, e.Source
	s.adoptShown(fe, e.Source, b.Address)
	s.begin(lim)
	if s.bound() != "" {
		s.withdraw()
		s.planCarrying()
	}
	w.loop.Arm(&s.timer, s.left())
	w.r.udpChanges.Add(1)
	return s
}

// goBeside makes the session one whose carrier has carried it all the while.
func (s *udpSession) goBeside(k *handoff.Kept, spec *flow.Spec) {
	c, loop := &s.carrying, s.u.w.loop
	c.way = &udpPath{s: s, carrier: k.Carrier}
	now := k.Carrier.Counters()
	c.heard, c.tryAt = now.PacketsToClient, notAgain
	s.seenFirst = [directions]bool{true, true}
	if !now.LastSeen.IsZero() {
		s.active -= int64(max(0, loop.Now().Sub(now.LastSeen)))
	}
	spec.PathName, spec.Path, spec.HandedOffAt = k.Carrier.Name(), c.way, k.HandedOffAt
}
