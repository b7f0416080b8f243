package relay

import (
	"errors"
	"math"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/pick"
	"github.com/baton-lb/baton/lb/relay/datagram"
	"github.com/baton-lb/baton/lb/relay/proxyproto"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/store"
)

// open begins a session for a client that has sent n datagrams, or counts why it
// gets none.
func (u *udpSocket) open(fe *store.Frontend, c udpClient, from *datagram.Name, n int) *udpSession {
	w := u.w
	lim, why := u.admit(fe, &c)
	if why != "" {
		w.drop(why, n)
		return nil
	}
	kept, again := w.r.saved.take(c.key(), w.loop.Now(), fe.Service.Timeouts.UDPIdle)
	s := u.newSession(fe, c, *from)
	s.carrying.proven, s.carrying.before = kept.Carried, kept.counters()
	s.record(kept.spec(fe, &c), lim)
	s.rec.Attach(flow.PathUserspace, s)
	if !again || !s.restore(kept) {
		if err := s.choose(""); err != nil {
			s.fails(lim, err, n)
			return nil
		}
	}
	s.begin(lim)
	return s
}

// newSession makes a session without a backend.
func (u *udpSocket) newSession(fe *store.Frontend, c udpClient, name datagram.Name) *udpSession {
	s := &udpSession{udpClient: c, u: u, fe: fe, name: name, fd: -1, active: u.w.loop.Nano()}
	s.together = [directions]uint16{math.MaxUint16, math.MaxUint16}
	s.timer.Fire = s.onTimer
	return s
}

// record makes the session's record.
func (s *udpSession) record(spec flow.Spec, lim *limits) {
	client := s.client.Addr()
	s.rec = s.u.w.r.registry.Open(spec)
	s.rec.WhenEnded(func() { lim.leave(client) })
}

// begin lets a session live that has its socket.
func (s *udpSession) begin(lim *limits) {
	w := s.u.w
	if s.carrying.way == nil {
		s.rec.Dialled()
		s.planCarrying()
	}
	w.udp.admit(s, lim)
	w.loop.Arm(&s.timer, s.life())
}

// admit makes room for a session, or says why there is to be none.
func (u *udpSocket) admit(fe *store.Frontend, c *udpClient) (*limits, flow.Drop) {
	w := u.w
	switch {
	case w.stopping:
		return nil, flow.DropShutdown
	case u.l.retiring.Load():
		return nil, flow.DropNoBackend
	case !permitted(fe, c.client.Addr()):
		return nil, flow.DropDenied
	}
	lim := w.r.udpLimits.of(fe.Service.Name)
	max := fe.Service.Limits
	max.Connections = 0 // udpSessions is the limit here, and it evicts
	if why, ok := lim.admit(w.loop.Now(), c.client.Addr(), max); !ok {
		return nil, why
	}
	if !w.udp.room(fe.Service, lim) {
		lim.leave(c.client.Addr())
		return nil, flow.DropNoDescriptors
	}
	return lim, ""
}

// fails ends a session that found no backend, at the cost of n datagrams.
func (s *udpSession) fails(lim *limits, err error, n int) {
	by, why, drop := s.whyNone(err)
	s.closed = true
	s.u.w.udp.giveBack(lim)
	s.rec.Finish(by, why)
	s.u.w.drop(drop, n)
}

func (s *udpSession) whyNone(err error) (flow.By, flow.Reason, flow.Drop) {
	switch {
	case errors.Is(err, sched.ErrNoBackend):
		return flow.ByBaton, flow.ReasonNoBackend, flow.DropNoBackend
	case errors.Is(err, sched.ErrBackendsFull):
		return flow.ByBaton, flow.ReasonLimit, flow.DropBackendsFull
	case outOfResources(err):
		return flow.ByBaton, flow.ReasonLocalResources, resourceDrop(err)
	case s.blamed:
		return flow.ByBackend, flow.ReasonDialFailed, flow.DropUnreachable
	case s.failed == flow.DialNoPorts:
		return flow.ByBaton, flow.ReasonLocalResources, flow.DropNoPorts
	}
	return flow.ByBaton, flow.ReasonDialFailed, flow.DropUnreachable
}

// restore goes on where an earlier process had to stop: the same backend, and the
// same source port if that is free. A backend that drains keeps its session.
func (s *udpSession) restore(kept savedSession) bool {
	w := s.u.w
	b, ok := mayStay(s.fe, kept.Backend)
	if !ok || !w.r.picker.Commit(s.rec, s.fe, pick.Choice{Backend: b, Picked: flow.ByAffinity}, w.loop.Now()) {
		return false
	}
	s.adopt(s.fe)
	return s.connect(b, kept.Source) == nil
}

// choose gives the session a backend that it has not tried, and a socket to it. how
// says why; "" = as the picker says. The error is one of package sched's when there
// is no such backend, or a lack of this host's resources.
func (s *udpSession) choose(how flow.Picked) error {
	w := s.u.w
	for {
		fe, ok := w.r.find(w.r.store.Snapshot(), lb.FrontendKey{Proto: flow.UDP, Address: s.local})
		if !ok || fe.Service.Name != s.rec.Service() {
			return sched.ErrNoBackend // it is another service's now
		}
		c, err := w.r.picker.Pick(pick.Request{
			Frontend: fe, Client: s.client, Inside: w.r.inside(fe, s.client.Addr()), Now: w.loop.Now(), Tried: s.tried,
		})
		if err != nil {
			return err
		}
		if how != "" {
			c.Picked = how
		}
		if !w.r.picker.Commit(s.rec, fe, c, w.loop.Now()) {
			continue
		}
		s.adopt(fe)
		if err = s.connect(c.Backend, netip.AddrPort{}); err == nil {
			return nil
		}
		s.failed = dialFailure(err)
		s.blamed = s.blamed || !s.failed.Local()
		s.rec.DialFailed(s.failed)
		if s.failed == flow.DialNoResources {
			return err
		}
		s.tried = append(s.tried, c.Backend)
	}
}

// adopt makes the session one of its frontend as it is now.
func (s *udpSession) adopt(fe *store.Frontend) {
	s.fe = fe
	s.header = nil
	if clientAddressOf(fe) == lb.ProxyV2 {
		s.header = proxyproto.Append(nil, proxyproto.V2, proxyproto.Datagram, s.client, s.asked)
	}
}

// connect makes b the backend, with a new socket: the way to it may begin at
// another of this host's addresses.
func (s *udpSession) connect(b *sched.Backend, source netip.AddrPort) error {
	w := s.u.w
	shown := w.r.show(s.fe, s.client, b.Address.Addr())
	fd, source, err := w.r.dialSession(b.Address, source, &shown)
	if err != nil {
		return err
	}
	if err := w.loop.AddReader(fd, s); err != nil {
		unix.Close(fd)
		if shown.client.IsValid() {
			w.r.udpTuples.give(udpTuple{source, b.Address})
		}
		return unix.ENOMEM
	}
	moves := s.fd >= 0
	if moves {
		s.withdraw()
		s.drain()
	}
	s.closeSocket()
	s.fd, s.backend, s.source, s.shown = fd, b, source, shown
	s.shown.tell(s.rec)
	s.together[toBackend] = math.MaxUint16
	if moves {
		s.planCarrying()
	}
	w.r.udpChanges.Add(1)
	return nil
}

// drain passes on what the backend has answered before the session leaves it. The
// worker's own receiver and sender may hold datagrams of the client.
func (s *udpSession) drain() {
	u := &s.u.w.udp
	if u.spare == nil {
		u.spare = newTransfer()
	}
	for range udpRounds {
		msgs, err := u.spare.receiver.Receive(s.fd)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		s.toClient(u.spare.sender, msgs)
	}
}

// dialSession makes a session's socket, at its client's address where that may be
// shown.
func (r *Relay) dialSession(to, local netip.AddrPort, shown *showing) (fd int, source netip.AddrPort, err error) {
	if shown.client.IsValid() {
		return r.dialShown(to, shown)
	}
	return r.dialUDP(to, local)
}

// dialUDP makes a socket to a backend, at the given local address if that is free
// and among the configured ones, else as the configuration says.
func (r *Relay) dialUDP(to, local netip.AddrPort) (fd int, source netip.AddrPort, err error) {
	if local.IsValid() && r.sources.has(local, to.Addr()) {
		if fd, source, err := udpTo(to, local); err == nil {
			return fd, source, nil
		}
	}
	for try := range r.sources.tries(to.Addr()) {
		local := r.sources.local(to.Addr(), try)
		if local.Port() != 0 && !local.Addr().IsValid() {
			local = netip.AddrPortFrom(unspecified(to.Addr()), local.Port())
		}
		fd, source, err = udpTo(to, local)
		if err == nil || dialFailure(err) != flow.DialNoPorts {
			break
		}
	}
	return fd, source, err
}

// udpTo makes a connected socket and says where it is. The network's errors are
// queued: a refusal is reported without that too, an unreachable host is not.
func udpTo(to, local netip.AddrPort) (fd int, source netip.AddrPort, err error) {
	return udpSocketTo(datagram.SocketParams{Local: local, Errors: true}, to)
}

func udpSocketTo(p datagram.SocketParams, to netip.AddrPort) (fd int, source netip.AddrPort, err error) {
	fd, err = datagram.NewSocket(p, to.Addr())
	if err != nil {
		return -1, source, err
	}
	if err = datagram.Connect(fd, to); err == nil {
		source, err = datagram.LocalAddr(fd)
	}
	if err != nil {
		unix.Close(fd)
		return -1, source, err
	}
	return fd, source, nil
}
