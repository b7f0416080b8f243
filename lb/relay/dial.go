package relay

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/pick"
	"github.com/baton-lb/baton/lb/relay/poll"
	"github.com/baton-lb/baton/lb/sched"
)

// dialNext chooses a backend that this flow has not tried and begins to connect
// to it. When there is none left, the client gets a reset.
func (f *tcpFlow) dialNext() {
	f.phase = phaseDialing
	for f.phase == phaseDialing {
		choice, err := f.choose()
		if err != nil {
			f.noChoice(err)
			return
		}
		f.tried = append(f.tried, choice.Backend)
		if f.dial(choice.Backend) {
			return
		}
	}
}

// choose picks a backend and commits to it.
func (f *tcpFlow) choose() (pick.Choice, error) {
	// Somebody else may take the last place of a backend between picking and
	// committing; each time that happens another pick is made.
	for {
		fe, ok := f.w.r.frontend(f.local)
		if !ok || fe.Service.Name != f.rec.Service() {
			return pick.Choice{}, sched.ErrNoBackend // it is another service's now
		}
		f.fe = fe // the newest: a backend that has just gone is not chosen
		c, err := f.w.r.picker.Pick(pick.Request{
			Frontend: f.fe, Client: f.client, Now: f.w.loop.Now(), Tried: f.tried,
			Inside: f.w.r.inside(f.fe, f.client.Addr()),
		})
		if err != nil {
			return c, err
		}
		if f.w.r.picker.Commit(f.rec, f.fe, c, f.w.loop.Now()) {
			return c, nil
		}
	}
}

func (f *tcpFlow) noChoice(err error) {
	switch {
	case errors.Is(err, sched.ErrAllTried):
		f.refuse(f.allFailed())
	case errors.Is(err, sched.ErrBackendsFull):
		f.refuse(flow.ByBaton, flow.ReasonLimit, flow.DropBackendsFull)
	default:
		f.refuse(flow.ByBaton, flow.ReasonNoBackend, flow.DropNoBackend)
	}
}

// allFailed says why no backend could be reached. Who is to blame is this host
// only when no backend was.
func (f *tcpFlow) allFailed() (flow.By, flow.Reason, flow.Drop) {
	switch {
	case f.blamed:
		return flow.ByBackend, flow.ReasonDialFailed, ""
	case f.failed == flow.DialNoPorts:
		return flow.ByBaton, flow.ReasonLocalResources, flow.DropNoPorts
	}
	return flow.ByBaton, flow.ReasonDialFailed, "" // a rule or a route of this host
}

// dial begins to connect to one backend, and reports false when that failed at
// once and the next backend should be tried.
func (f *tcpFlow) dial(b *sched.Backend) bool {
	f.prepare(b)
	fd, err := f.connect(b)
	if err != nil {
		return !f.dialFailed(dialFailure(err))
	}
	f.mu.Lock()
	f.back.fd = fd
	f.mu.Unlock()
	f.toBackend.Dst, f.toClient.Src = fd, fd
	f.toBackend.Writable, f.toClient.Readable = false, false
	f.toClient.Ended = false
	f.back.broken, f.back.pauses = false, false
	f.dialStart = f.w.loop.Nano()
	f.w.loop.Arm(&f.timer, f.fe.Service.Timeouts.Connect)
	if err := f.w.loop.Add(fd, &f.back); err != nil {
		return !f.dialFailed(flow.DialNoResources)
	}
	return true
}

// connect tries local addresses and ports until one is free towards b: those of the
// lease, and when it has no more, the others.
func (f *tcpFlow) connect(b *sched.Backend) (int, error) {
	for f.dialTry = 0; ; f.dialTry++ {
		fd, err := dialTCP(f.dialParams(b), b.Address)
		if err == nil || dialFailure(err) != flow.DialNoPorts {
			return fd, err
		}
		switch {
		case f.lease != nil && f.dialTry < portTries && f.lease.Next():
		case f.lease != nil:
			f.releaseLease(flow.ReasonDialFailed)
			f.rec.NotOffloaded(flow.NotOffloadedNoPort)
			f.dialTry = -1
		case f.dialTry+1 >= f.w.r.sources.tries(b.Address.Addr()):
			return fd, err
		}
	}
}

// readyWhileDialing sorts what happens before the backend has answered.
func (f *tcpFlow) readyWhileDialing(l *leg, ev poll.Events) {
	if l == &f.front {
		// A client that only half-closed has no Hup. One that reset the
		// connection after sending something is served: the backend gets those
		// bytes, then the reset.
		if ev&(poll.Err|poll.Hup) != 0 && unread(f.front.fd) == 0 {
			f.abort(flow.ByClient, flow.ReasonReset)
		}
		return
	}
	if ev&(poll.Out|poll.Err|poll.Hup) == 0 {
		return
	}
	switch err := f.dialError(ev); {
	case err != nil:
		f.retry(answerFailure(err))
	case f.connectedToItself():
		f.retry(flow.DialRefused)
	default:
		f.connected()
	}
}

// dialError is why a connection failed: the event says whether, the socket why.
func (f *tcpFlow) dialError(ev poll.Events) error {
	if ev&(poll.Err|poll.Hup) == 0 {
		return nil
	}
	f.back.broken = false
	errno, err := unix.GetsockoptInt(f.back.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	return err
}

// connectedToItself reports whether the socket is its own peer. When nothing listens
// at a port of this host, and the kernel happens to choose that port for the
// connection to it, TCP's simultaneous open makes such a socket (RFC 9293,
// section 3.5).
func (f *tcpFlow) connectedToItself() bool {
	peer := f.tried[len(f.tried)-1].Address
	if !f.w.r.sources.chooses(peer.Port()) {
		return false
	}
	local, err := unix.Getsockname(f.back.fd)
	return err == nil && addrPort(local) == peer
}

func (f *tcpFlow) connected() {
	f.w.r.observeDial(time.Duration(f.w.loop.Nano() - f.dialStart))
	if err := f.sendHeader(); err != nil {
		f.retry(answerFailure(err))
		return
	}
	f.shown.tell(f.rec)
	f.established()
}

func (f *tcpFlow) dialTimedOut() { f.retry(flow.DialTimeout) }

// retry goes on to the next backend after a failure.
func (f *tcpFlow) retry(why flow.DialFailure) {
	if f.dialFailed(why) {
		f.dialNext()
	}
}

// dialFailed gives up on the backend being dialled, and reports whether another
// may be tried. A lack of descriptors or memory no other backend would cure; a
// lack of ports, a route or a packet filter of this host concerns one backend,
// though it is not that one's fault.
func (f *tcpFlow) dialFailed(why flow.DialFailure) (next bool) {
	f.mu.Lock()
	fd := f.back.fd
	f.back.fd = -1
	f.mu.Unlock()
	if fd >= 0 {
		f.w.loop.Forget(fd)
		unix.Close(fd)
	}
	f.w.loop.Disarm(&f.timer)
	f.releaseLease(flow.ReasonDialFailed)
	f.rec.DialFailed(why)
	f.failed, f.blamed = why, f.blamed || !why.Local()
	if why != flow.DialNoResources {
		return true
	}
	f.refuse(flow.ByBaton, flow.ReasonLocalResources, flow.DropNoDescriptors)
	return false
}
