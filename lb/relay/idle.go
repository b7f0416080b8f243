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

// armWithin sets the timer, to sooner if the peers are to be looked at before.
func (f *tcpFlow) armWithin(d time.Duration) {
	f.w.loop.Arm(&f.timer, min(d, max(minPeerCheck, f.fe.Service.Timeouts.PeerLost/2)))
}

// checkIdle ends the flow if it has stood still for too long.
func (f *tcpFlow) checkIdle() {
	if f.stopped {
		f.armWithin(f.fe.Service.Timeouts.Idle)
		return
	}
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
