package relay

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/relay/poll"
	"github.com/baton-lb/baton/lb/store"
)

// acceptBatch is how many connections one listener gives in one round, so that
// a flood at one frontend does not starve the rest.
const acceptBatch = 32

// perFlow is how many descriptors a flow needs: one for each leg.
const perFlow = 2

// maxWaiting is how many connections may wait at one listener.
const maxWaiting = capture.DefaultBacklog

// acceptor takes connections from one listener on one worker's loop.
type acceptor struct {
	w      *worker
	l      *listener
	asleep bool // not watched: see worker.sleep
}

var _ poll.Handler = (*acceptor)(nil)

// Ready accepts what waits.
func (a *acceptor) Ready(poll.Events) {
	a.accept()
	if a.w.paused {
		a.w.sleep(a)
	}
}

// accept takes a batch of connections and reports whether there may be more to
// take at once.
func (a *acceptor) accept() (more bool) {
	w := a.w
	for range acceptBatch {
		if w.paused {
			return false
		}
		if !w.r.budget.take(perFlow) {
			w.pause(flow.DropNoDescriptors)
			return false
		}
		fd, peer, err := acceptConn(a.l.fd)
		if err != nil {
			w.r.budget.put(perFlow)
			if a.failed(err) {
				return false
			}
			continue
		}
		w.accepted()
		a.hand(fd, peer)
	}
	return true
}

// failed sorts an error of accept(2) and reports whether to stop for now.
func (a *acceptor) failed(err error) (stop bool) {
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EBADF), errors.Is(err, unix.EINVAL):
		return true // nothing waits, or the listener is being closed
	case outOfResources(err):
		a.w.pause(resourceDrop(err))
		return true
	}
	// ECONNABORTED, EINTR, and network errors already pending on the new
	// connection (accept(2), "Error handling"): that connection is gone.
	return false
}

// hand gives the connection to the worker that has the fewest.
func (a *acceptor) hand(fd int, peer netip.AddrPort) {
	local := a.l.addr
	if a.l.shared || local.Addr().IsUnspecified() {
		sa, err := unix.Getsockname(fd)
		if err != nil {
			unix.Close(fd)
			a.w.r.budget.put(perFlow)
			return
		}
		local = addrPort(sa)
	}
	to := a.w.quietest()
	to.loop.Load().Add(1)
	if to == a.w {
		to.admit(fd, peer, local, a.l.shared)
		return
	}
	if !to.loop.Post(func() { to.admit(fd, peer, local, a.l.shared) }) {
		to.turnAway(fd, flow.DropShutdown)
	}
}

// admit makes a flow of a new connection, or turns it away. The caller has
// taken two descriptors from the budget and added one to the loop's load. A socket
// from a shared listener has not inherited what its service wants.
func (w *worker) admit(fd int, peer, local netip.AddrPort, shared bool) {
	if w.stopping {
		w.turnAway(fd, flow.DropShutdown)
		return
	}
	fe, ok := w.r.frontend(local)
	if !ok {
		w.turnAway(fd, flow.DropNoFrontend)
		return
	}
	if k := keepAliveOf(fe.Service.Timeouts); shared && k != sharedKeepAlive && setTCPOptions(fd, k) != nil {
		w.turnAway(fd, flow.DropNoMemory)
		return
	}
	f := newTCPFlow(w, fe, fd, peer, local)
	if err := w.loop.Add(fd, &f.front); err != nil {
		w.turnAway(fd, flow.DropNoMemory)
		return
	}
	w.flows[f] = struct{}{}
	if contains(fe.Service.AcceptProxy, peer.Addr()) {
		f.awaitHeader()
		return
	}
	f.begin()
}

// turnAway resets a connection that never became a flow.
func (w *worker) turnAway(fd int, why flow.Drop) {
	w.r.registry.Drop(why)
	unix.Close(fd) // with a reset: see setLingerReset
	w.r.budget.put(perFlow)
	w.loop.Load().Add(-1)
}

// permitted says whether a client may use a frontend.
func permitted(fe *store.Frontend, client netip.Addr) bool {
	if len(fe.AllowSources) > 0 && !contains(fe.AllowSources, client) {
		return false
	}
	if contains(fe.Service.Deny, client) {
		return false
	}
	return len(fe.Service.Allow) == 0 || contains(fe.Service.Allow, client)
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
