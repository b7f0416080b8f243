package relay

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/relay/datagram"
	"github.com/baton-lb/baton/lb/store"
)

// Queues that are asked for at each frontend's socket, in bytes. A burst waits
// there while the loop is busy: the kernel grants twice as much, and counts some
// 800 bytes for a small datagram.
const (
	udpReceiveSize = 32 << 20
	udpSendSize    = 4 << 20
)

// udpListener is a UDP frontend's sockets, one for each worker.
//
//	open -- no usable backend --> retiring -- the last session has ended --> closed
//	          ^                       |                                        |
//	          +-------------------- a usable backend --------------------------+
//
// While it retires, sessions to draining backends go on, and nobody gets a new
// one. Its sockets close together: the kernel spreads clients over those that are
// open, and must not spread them anew.
type udpListener struct {
	key      lb.FrontendKey
	retiring atomic.Bool  // or closed; the control plane writes it
	sessions atomic.Int64 // that answer through its sockets

	socks []*udpSocket // guarded by Relay.mu; nil = closed
}

// programUDPLocked makes the UDP sockets of the changed services those of the
// snapshot, but for frontends without their address.
func (r *Relay) programUDPLocked(c store.Change, without map[lb.FrontendKey]struct{}, host func() (*capture.Host, error)) []store.Failure {
	wanted := wantedUDP(c)
	r.closeUDPLocked(r.listeners.unwantedUDP(c.Services, wanted), flow.ReasonServiceRemoved)
	var retire, open []*udpListener
	owners := make(map[*udpListener]*store.Frontend)
	for key, fe := range wanted {
		r.listeners.udpOf[fe.Service.Name] = append(r.listeners.udpOf[fe.Service.Name], key)
		if _, ok := without[key]; ok {
			continue
		}
		l, serves := r.listeners.udp[key], fe.Usable() || r.swallows(fe)
		switch {
		case serves && (l == nil || l.retiring.Load()):
			if l == nil {
				l = &udpListener{key: key, socks: make([]*udpSocket, len(r.workers))}
			}
			open, owners[l] = append(open, l), fe
		case !serves && l != nil:
			retire = append(retire, l)
		}
	}
	r.retireUDPLocked(retire)
	var failures []store.Failure
	for l, err := range r.openUDPLocked(open, host) {
		failures = append(failures, failure(owners[l], err))
	}
	return failures
}

// wantedUDP lists the UDP frontends of the changed services.
func wantedUDP(c store.Change) map[lb.FrontendKey]*store.Frontend {
	wanted := make(map[lb.FrontendKey]*store.Frontend)
	for _, name := range c.Services {
		s, ok := c.To.Service(name)
		if !ok {
			continue
		}
		for _, fe := range s.FrontendSet {
			if fe.Proto == flow.UDP {
				wanted[fe.FrontendKey] = fe
			}
		}
	}
	return wanted
}

// unwantedUDP lists what the changed services had and none of them has, and forgets
// whose the rest was.
func (l *listeners) unwantedUDP(services []string, wanted map[lb.FrontendKey]*store.Frontend) (gone []*udpListener) {
	for _, name := range services {
		for _, key := range l.udpOf[name] {
			if open := l.udp[key]; open != nil && wanted[key] == nil {
				gone = append(gone, open)
			}
		}
		delete(l.udpOf, name)
	}
	return gone
}

// openUDPLocked opens the sockets that listeners lack, and takes back retirements.
// One that fails is closed.
func (r *Relay) openUDPLocked(all []*udpListener, host func() (*capture.Host, error)) map[*udpListener]error {
	if len(all) == 0 {
		return nil
	}
	failed := make(map[*udpListener]error)
	r.unretireUDPLocked(all)
	for _, l := range all {
		r.listeners.udp[l.key] = l
		if err := r.bindUDPLocked(l, host); err != nil {
			failed[l] = err
		}
	}
	if r.inherit.holding {
		return r.closeFailedLocked(failed)
	}
	r.restoreKeptLocked(func(l *udpListener) bool { return failed[l] == nil })
	// Only now does any of them take datagrams: a client must not get a session at
	// the first socket, and another one when the second is there.
	for i, w := range r.workers {
		_ = w.loop.Call(func() {
			for _, l := range all {
				if failed[l] != nil {
					continue
				}
				if err := w.udp.serve(l.socks[i]); err != nil {
					failed[l] = err
				}
			}
		})
	}
	return r.closeFailedLocked(failed)
}

func (r *Relay) closeFailedLocked(failed map[*udpListener]error) map[*udpListener]error {
	r.closeUDPLocked(slices.Collect(maps.Keys(failed)), flow.ReasonLocalResources)
	return failed
}

// bindUDPLocked makes the sockets that a listener lacks.
func (r *Relay) bindUDPLocked(l *udpListener, host func() (*capture.Host, error)) error {
	h, err := host()
	if err != nil {
		return fmt.Errorf("read this host's addresses: %w", err)
	}
	mode, err := r.listeners.taking.decide(l.key.Address.Addr(), h)
	if err != nil {
		return err
	}
	shared := len(r.workers) > 1
	for i, w := range r.workers {
		if l.socks[i] != nil || r.inheritUDPLocked(l, i) {
			continue
		}
		fd, err := datagram.NewSocket(datagram.SocketParams{
			Local: l.key.Address, Freebind: mode != capture.Bind, ReusePort: shared, Deaf: shared,
			PacketInfo: l.key.Address.Addr().IsUnspecified(), Errors: true,
			ReceiveSize: udpReceiveSize, SendSize: udpSendSize,
		}, l.key.Address.Addr())
		if err != nil {
			return capture.Explain(err, "udp", l.key.Address)
		}
		r.budget.used.Add(1)
		l.socks[i] = &udpSocket{w: w, l: l, fd: fd, key: l.key, sessions: make(map[udpKey]*udpSession)}
	}
	return nil
}

// serve begins to take datagrams from a socket.
func (u *udpWorker) serve(s *udpSocket) error {
	if u.sockets[s.l] == s {
		return nil
	}
	u.prepare()
	u.sockets[s.l] = s
	return errors.Join(u.w.loop.AddReader(s.fd, s), datagram.Listen(s.fd))
}

// unretireUDPLocked takes listeners back into full service, without the sockets
// that have closed.
func (r *Relay) unretireUDPLocked(all []*udpListener) {
	for _, l := range all {
		l.retiring.Store(false)
	}
	for i, w := range r.workers {
		_ = w.loop.Call(func() {
			for _, l := range all {
				if s := l.socks[i]; s != nil && s.closed {
					l.socks[i] = nil
				}
			}
		})
	}
}

// retireUDPLocked has listeners close when their last session has ended, so that
// the kernel refuses their clients.
func (r *Relay) retireUDPLocked(all []*udpListener) {
	if len(all) == 0 {
		return
	}
	for _, l := range all {
		l.retiring.Store(true)
	}
	for _, w := range r.workers {
		_ = w.loop.Call(func() {
			for _, l := range all {
				w.udp.closeUnused(l)
			}
		})
	}
}

// closeUDPLocked closes listeners, with their sessions.
func (r *Relay) closeUDPLocked(all []*udpListener, why flow.Reason) {
	if len(all) == 0 {
		return
	}
	for i, w := range r.workers {
		_ = w.loop.Call(func() {
			for _, l := range all {
				if s := l.socks[i]; s != nil {
					s.close(why)
				}
			}
		})
	}
	for _, l := range all {
		delete(r.listeners.udp, l.key)
	}
}

// add lists a session that answers through the socket.
func (u *udpSocket) add(s *udpSession) {
	u.sessions[s.key()] = s
	u.l.sessions.Add(1)
}

// sessionEnded closes a listener that was waiting for its last session to end.
func (u *udpSocket) sessionEnded() {
	l := u.l
	if l.sessions.Add(-1) > 0 || !l.retiring.Load() {
		return
	}
	u.w.r.udpRetired(l.key)
	for _, w := range u.w.r.workers {
		if w == u.w {
			w.udp.closeUnused(l)
		} else {
			w.loop.Post(func() { w.udp.closeUnused(l) })
		}
	}
}

// closeUnused closes the worker's socket of a listener that has retired.
func (u *udpWorker) closeUnused(l *udpListener) {
	if s := u.sockets[l]; s != nil && l.retiring.Load() && l.sessions.Load() == 0 {
		s.shut()
	}
}

// close closes the socket with the sessions that answer through it.
func (u *udpSocket) close(why flow.Reason) {
	for _, s := range u.sessions {
		s.close(flow.ByBaton, why)
	}
	u.shut()
}

func (u *udpSocket) shut() {
	if u.closed {
		return
	}
	u.closed = true
	delete(u.w.udp.sockets, u.l)
	u.w.loop.Forget(u.fd)
	unix.Close(u.fd)
	u.w.r.budget.put(1)
}

// stopUDP ends every session at once: they are kept for the next process, and no
// datagram tells when a session would end by itself.
func (r *Relay) stopUDP() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.listeners.udp) == 0 {
		return
	}
	if err := r.saveSessions(true); err != nil {
		r.log.Warn("clients of UDP services may get other backends after a restart", "err", err)
	}
	r.refuseAllLocked(flow.UDP)
	var all []*udpListener
	for _, l := range r.listeners.udp {
		all = append(all, l)
	}
	r.closeUDPLocked(all, flow.ReasonShutdown)
}
