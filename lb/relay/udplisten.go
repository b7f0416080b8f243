package relay

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/relay/datagram"
	"github.com/baton-lb/baton/lb/store"
)

// udpListener is a UDP frontend's sockets, one for each worker. A nil entry has
// closed; only the control plane changes the slice.
type udpListener struct {
	key   lb.FrontendKey
	socks []*udpSocket
}

// listenUDPLocked opens the sockets of a frontend that are not open, and takes
// back a retirement.
func (r *Relay) listenUDPLocked(key lb.FrontendKey, host *capture.Host) error {
	mode, err := r.listeners.taking.decide(key.Address.Addr(), host)
	if err != nil {
		return err
	}
	l := r.listeners.udp[key]
	if l == nil {
		l = &udpListener{key: key, socks: make([]*udpSocket, len(r.workers))}
	}
	for i, w := range r.workers {
		if s := l.socks[i]; s != nil && w.unretire(s) {
			continue
		}
		fd, err := datagram.NewSocket(datagram.SocketParams{
			Local: key.Address, Freebind: mode != capture.Bind, ReusePort: len(r.workers) > 1,
			PacketInfo: key.Address.Addr().IsUnspecified(), Errors: true,
			ReceiveSize: udpSocketSize, SendSize: udpSocketSize,
		}, key.Address.Addr())
		if err != nil {
			r.closeUDPLocked(l, flow.ReasonLocalResources)
			return capture.Explain(err, "udp", key.Address)
		}
		l.socks[i] = &udpSocket{w: w, fd: fd, key: key}
	}
	r.listeners.udp[key] = l
	for i, w := range r.workers {
		w.loop.Post(func() { w.udp.addSocket(l.socks[i]) })
	}
	return nil
}

// unretire takes a socket back into full service. It reports false when the
// socket has closed.
func (w *worker) unretire(s *udpSocket) (open bool) {
	_ = w.loop.Call(func() {
		if !s.closed {
			s.retiring, open = false, true
		}
	})
	return open
}

// retireUDPLocked closes the sockets of a frontend without usable backends, so
// that the kernel refuses its clients. Those that still answer for sessions to
// draining backends close with the last of them.
func (r *Relay) retireUDPLocked(l *udpListener) {
	open := false
	for i, w := range r.workers {
		s := l.socks[i]
		if s == nil {
			continue
		}
		_ = w.loop.Call(func() {
			s.retiring = true
			s.sessionEnded()
			open = open || !s.closed
		})
	}
	if !open {
		delete(r.listeners.udp, l.key)
	}
}

// closeUDPLocked closes the sockets of a frontend, with their sessions.
func (r *Relay) closeUDPLocked(l *udpListener, why flow.Reason) {
	for i, w := range r.workers {
		if s := l.socks[i]; s != nil {
			_ = w.loop.Call(func() { w.udp.removeSocket(s, why) })
		}
	}
	delete(r.listeners.udp, l.key)
}

// programUDPLocked makes the UDP sockets of the changed services those of the
// snapshot, but for frontends without their address.
func (r *Relay) programUDPLocked(c store.Change, without map[lb.FrontendKey]struct{}, host func() (*capture.Host, error)) (failures []store.Failure) {
	wanted := make(map[lb.FrontendKey]*store.Frontend)
	for _, name := range c.Services {
		s, ok := c.To.Service(name)
		if !ok || s.Mode != flow.ModeProxy {
			continue
		}
		for _, fe := range s.FrontendSet {
			if fe.Proto == flow.UDP {
				wanted[fe.FrontendKey] = fe
			}
		}
	}
	for _, name := range c.Services {
		for _, key := range r.listeners.udpOf[name] {
			if l := r.listeners.udp[key]; l != nil && wanted[key] == nil {
				r.closeUDPLocked(l, flow.ReasonServiceRemoved)
			}
		}
		delete(r.listeners.udpOf, name)
	}
	for key, fe := range wanted {
		r.listeners.udpOf[fe.Service.Name] = append(r.listeners.udpOf[fe.Service.Name], key)
		if _, ok := without[key]; ok {
			continue
		}
		if err := r.programUDPFrontendLocked(fe, host); err != nil {
			failures = append(failures, failure(fe, err))
		}
	}
	return failures
}

func (r *Relay) programUDPFrontendLocked(fe *store.Frontend, host func() (*capture.Host, error)) error {
	l := r.listeners.udp[fe.FrontendKey]
	if fe.Scheduler.Usable() == 0 && !r.swallows(fe) {
		if l != nil {
			r.retireUDPLocked(l)
		}
		return nil
	}
	if l != nil && !l.retired() {
		return nil
	}
	h, err := host()
	if err != nil {
		return fmt.Errorf("read this host's addresses: %w", err)
	}
	return r.listenUDPLocked(fe.FrontendKey, h)
}

// retired reports whether a socket is closing, or has closed by itself.
func (l *udpListener) retired() (yes bool) {
	for _, s := range l.socks {
		_ = s.w.loop.Call(func() { yes = yes || s.retiring || s.closed })
	}
	return yes
}

// closed reports whether every socket has closed.
func (l *udpListener) closed() bool {
	open := false
	for _, s := range l.socks {
		_ = s.w.loop.Call(func() { open = open || !s.closed })
	}
	return !open
}

// addSocket is posted by the control plane.
func (u *udpWorker) addSocket(s *udpSocket) {
	if _, known := u.sockets[s]; known || s.closed {
		return
	}
	if u.receiver == nil {
		u.receiver, u.sender = datagram.NewReceiver(), new(datagram.Sender)
	}
	u.sockets[s] = struct{}{}
	if err := u.w.loop.Add(s.fd, s); err != nil {
		u.w.drop(flow.DropNoMemory, 1)
	}
}

// removeSocket closes a frontend's socket with the sessions that answer through it.
func (u *udpWorker) removeSocket(s *udpSocket, why flow.Reason) {
	if s.closed {
		return
	}
	s.closed = true
	for _, session := range u.sessions {
		if session.u == s {
			session.close(flow.ByBaton, why)
		}
	}
	s.shut()
}

// sessionEnded closes a socket that was waiting for its last session to end.
func (s *udpSocket) sessionEnded() {
	if s.retiring && s.sessions == 0 && !s.closed {
		s.closed = true
		s.shut()
		s.w.r.udpRetired(s.key)
	}
}

func (s *udpSocket) shut() {
	delete(s.w.udp.sockets, s)
	s.w.loop.Forget(s.fd)
	unix.Close(s.fd)
}

// reconcile moves or ends the sessions of a service whose backends have changed:
// not one more datagram may go to an address that is no longer the service's,
// whatever the policy for connections is. A backend that drains keeps its sessions.
func (u *udpWorker) reconcile(name string) {
	g := u.groups[name]
	if g == nil {
		return
	}
	svc, ok := u.w.r.store.Snapshot().Service(name)
	for _, s := range g.sessions() {
		switch {
		case !ok:
			s.close(flow.ByBaton, flow.ReasonServiceRemoved)
		case !listed(svc, s.backend.Address):
			s.tried = nil
			if !s.repick(flow.ByRetry) {
				s.close(flow.ByBaton, flow.ReasonBackendRemoved)
			}
		default:
			s.renew()
		}
	}
}

// renew makes the session follow its service's new settings.
func (s *udpSession) renew() {
	if fe, ok := s.u.w.r.store.Snapshot().Frontend(lb.FrontendKey{Proto: flow.UDP, Address: s.local}); ok {
		s.fe = fe
		s.onTimer()
	}
}

// sessions lists the group.
func (g *udpGroup) sessions() []*udpSession {
	all := make([]*udpSession, 0, g.n)
	for _, l := range []*udpList{&g.oneShot, &g.used} {
		for s := l.first; s != nil; s = s.next {
			all = append(all, s)
		}
	}
	return all
}

// stopUDP ends every session at once: they are kept for the next process, and no
// datagram tells when a session would end by itself.
func (r *Relay) stopUDP() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.listeners.udp) == 0 {
		return
	}
	if err := r.saveSessions(); err != nil {
		r.log.Warn("clients of UDP services may get other backends after a restart", "err", err)
	}
	r.refuseAllLocked(flow.UDP)
	for _, l := range r.listeners.udp {
		r.closeUDPLocked(l, flow.ReasonShutdown)
	}
}
