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

func (f *tcpFlow) armIdle() {
	limit, _ := f.idleLimit()
	f.w.loop.Arm(&f.timer, limit-time.Duration(f.w.loop.Nano()-f.changed))
}

// checkIdle ends the flow if it has stood still for too long.
func (f *tcpFlow) checkIdle() {
	limit, reason := f.idleLimit()
	idle := time.Duration(f.w.loop.Nano() - f.changed)
	switch {
	case idle < limit:
		f.armIdle()
	case f.stopped || reason == flow.ReasonHalfClosedIdle && f.delivering() && idle < f.fe.Service.Timeouts.Idle:
		f.w.loop.Arm(&f.timer, limit)
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
