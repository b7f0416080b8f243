package relay

import (
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// idleLimit is how long the flow may stand still, and what ends it then.
func (f *tcpFlow) idleLimit() (time.Duration, flow.Reason) {
	if f.toBackend.Done() || f.toClient.Done() {
		return f.fe.Service.Timeouts.HalfClosed, flow.ReasonHalfClosedIdle
	}
	return f.fe.Service.Timeouts.Idle, flow.ReasonIdle
}

// armIdle sets the timer to when the flow has stood still for too long, if no
// byte moves until then.
func (f *tcpFlow) armIdle() {
	limit, _ := f.idleLimit()
	f.armWithin(limit - time.Duration(f.w.loop.Nano()-f.changed))
}

// settleAfter is how old a flow is when the kernel is asked to watch over its
// backend. Most flows are gone by then, and have saved the system calls.
const settleAfter = 5 * time.Second

// settle has the kernel watch over the backend as over the client, whose socket
// has inherited that from the listener.
func (f *tcpFlow) settle() {
	if f.settled {
		return
	}
	f.settled = true
	_ = keepAliveOf(f.fe.Service.Timeouts).set(f.back.fd)
}

// armWithin sets the timer, to sooner if the peers are to be looked at before.
func (f *tcpFlow) armWithin(d time.Duration) {
	if !f.settled {
		d = min(d, settleAfter, f.fe.Service.Timeouts.KeepAlive/2)
	}
	f.w.loop.Arm(&f.timer, min(d, max(minPeerCheck, f.fe.Service.Timeouts.PeerLost/2)))
}

// openTimer ends what has lasted for too long: a hold, or a stillness.
func (f *tcpFlow) openTimer() {
	if f.held {
		f.unhold()
		f.move()
		return
	}
	f.checkIdle()
}

// checkIdle ends the flow if it has stood still for too long.
func (f *tcpFlow) checkIdle() {
	if f.stopped {
		f.armWithin(f.fe.Service.Timeouts.Idle)
		return
	}
	f.settle()
	if f.checkPeer(&f.front) || f.checkPeer(&f.back) {
		return
	}
	limit, reason := f.idleLimit()
	idle := time.Duration(f.w.loop.Nano() - f.changed)
	switch {
	case idle < limit:
		f.armIdle()
	case reason == flow.ReasonHalfClosedIdle && f.delivering() && idle < f.fe.Service.Timeouts.Idle:
		f.armWithin(limit)
	default:
		f.abort(flow.ByBaton, reason)
	}
}

// delivering reports whether the end of one side is still on its way to the
// other, behind bytes that this one has yet to take: a client that pauses may
// have its whole answer in front of it. It has not been idle for half a
// connection then, but for a whole one.
func (f *tcpFlow) delivering() bool {
	return f.toBackend.Done() && unacknowledged(f.back.fd) > 0 ||
		f.toClient.Done() && unacknowledged(f.front.fd) > 0
}
