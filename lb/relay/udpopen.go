package relay

import (
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

// open begins a session, or counts why the client gets none.
func (u *udpSocket) open(fe *store.Frontend, c udpClient, m *datagram.Message) *udpSession {
	w := u.w
	if w.stopping {
		w.drop(flow.DropShutdown, m.Count())
		return nil
	}
	if !permitted(fe, c.client.Addr()) {
		w.drop(flow.DropDenied, m.Count())
		return nil
	}
	lim := w.r.udpLimits.of(fe.Service.Name)
	max := fe.Service.Limits
	max.Connections = 0 // udpSessions is the limit here, and it evicts
	if why, ok := lim.admit(w.loop.Now(), c.client.Addr(), max); !ok {
		w.drop(why, m.Count())
		return nil
	}
	if why, ok := w.udp.room(fe); !ok {
		lim.leave(c.client.Addr())
		w.drop(why, m.Count())
		return nil
	}
	s := &udpSession{udpClient: c, u: u, fe: fe, name: *m.From, fd: -1, active: w.loop.Nano()}
	s.timer.Fire = s.onTimer
	s.rec = w.r.registry.Open(flow.Spec{Proto: flow.UDP, Service: fe.Service.Name, Frontend: c.asked, Client: c.client})
	s.rec.WhenEnded(func() { lim.leave(c.client.Addr()) })
	s.rec.Attach(flow.PathUserspace, s)
	w.loop.Load().Add(1)
	w.udp.admit(s)
	if why, drop := s.begin(); why != "" {
		if drop != "" {
			w.drop(drop, m.Count())
		}
		s.close(flow.ByBaton, why)
		return nil
	}
	return s
}

// begin finds a backend and connects a socket to it. On a failure it says why the
// session ends at once.
func (s *udpSession) begin() (flow.Reason, flow.Drop) {
	if !s.restore() && !s.repick("") {
		if s.fd < 0 && s.backend != nil {
			return flow.ReasonLocalResources, flow.DropNoDescriptors
		}
		return flow.ReasonNoBackend, flow.DropNoBackend
	}
	if s.fe.Service.ClientAddress == lb.ProxyV2 {
		s.header = proxyproto.Append(nil, proxyproto.V2, proxyproto.Datagram, s.client, s.asked)
	}
	s.rec.Dialled()
	s.rec.NotOffloaded(flow.NotOffloadedUnavailable)
	s.u.w.loop.Arm(&s.timer, s.life())
	return "", ""
}

// restore goes on where an earlier process had to stop: the same backend, and the
// same source port if that is free. A backend that drains keeps its session.
func (s *udpSession) restore() bool {
	w := s.u.w
	kept, ok := w.r.saved.take(s.key().wire, w.loop.Now(), s.fe.Service.Timeouts.UDPIdle)
	if !ok {
		return false
	}
	b, ok := s.fe.Service.Backend(kept.Backend)
	if !ok || b.State == lb.StateDown {
		return false
	}
	c := pick.Choice{Backend: b, Picked: flow.ByAffinity}
	return w.r.picker.Commit(s.rec, s.fe, c, w.loop.Now()) && s.connect(b, kept.Local) == nil
}

// repick moves the session to a backend that it has not tried. The socket, and
// with it the source port, stays. how says why; "" = as the picker says.
func (s *udpSession) repick(how flow.Picked) bool {
	w := s.u.w
	for {
		fe, ok := w.r.store.Snapshot().Frontend(lb.FrontendKey{Proto: flow.UDP, Address: s.local})
		if !ok {
			return false
		}
		c, err := w.r.picker.Pick(pick.Request{Frontend: fe, Client: s.client, Now: w.loop.Now(), Tried: s.tried})
		if err != nil {
			return false
		}
		if how != "" {
			c.Picked = how
		}
		if !w.r.picker.Commit(s.rec, fe, c, w.loop.Now()) {
			continue
		}
		s.fe = fe
		if err := s.connect(c.Backend, netip.AddrPort{}); err != nil {
			why := dialFailure(err)
			s.rec.DialFailed(why)
			if why.Local() {
				return false
			}
			s.tried = append(s.tried, c.Backend)
			continue
		}
		return true
	}
}

// connect makes b the backend. The socket is kept unless b is of the other family.
func (s *udpSession) connect(b *sched.Backend, local netip.AddrPort) error {
	to := b.Address.Addr()
	if s.fd < 0 || s.backend.Address.Addr().Is4() != to.Is4() {
		fd, err := s.u.w.r.backendSocket(to, local)
		if err != nil {
			return err
		}
		if err := s.u.w.loop.Add(fd, s); err != nil {
			unix.Close(fd)
			return unix.ENOMEM
		}
		s.closeSocket()
		s.fd = fd
	}
	s.backend = b
	return unix.Connect(s.fd, datagram.Sockaddr(b.Address))
}

func (s *udpSession) closeSocket() {
	if s.fd >= 0 {
		s.u.w.loop.Forget(s.fd)
		unix.Close(s.fd)
		s.fd = -1
	}
}

// backendSocket makes a socket towards a backend, at the given local address if that is
// free, else as the configuration says.
func (r *Relay) backendSocket(to netip.Addr, local netip.AddrPort) (fd int, err error) {
	if local.IsValid() && local.Addr().Is4() == to.Is4() {
		if fd, err := datagram.NewSocket(datagram.SocketParams{Local: local}, to); err == nil {
			return fd, nil
		}
	}
	for try := range r.sources.tries(to) {
		local := r.sources.local(to, try)
		if local.Port() != 0 && !local.Addr().IsValid() {
			local = netip.AddrPortFrom(unspecified(to), local.Port())
		}
		fd, err = datagram.NewSocket(datagram.SocketParams{Local: local}, to)
		if err == nil || dialFailure(err) != flow.DialNoPorts {
			return fd, err
		}
	}
	return fd, err
}
