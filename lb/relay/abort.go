package relay

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

// A reset throws away what its sender has not sent yet. So when one leg breaks,
// the bytes that it had sent before are delivered to the other leg first, and
// only when that peer has acknowledged them all does it get its reset.

// Waiting for the last acknowledgement.
const (
	firstLinger = time.Millisecond
	maxLinger   = time.Second // a peer may be stuck, and there may be thousands
)

// breaks notes that a leg has failed, and begins to pass that on.
func (f *tcpFlow) breaks(l *leg, err error) {
	if f.phase == phaseAborting {
		if l != f.broken {
			f.abort(f.endedBy, f.reason) // both are broken: there is nobody left to tell
		}
		return
	}
	f.phase = phaseAborting
	f.broken, f.endedBy, f.reason = l, l.by, endReason(err)
	f.changed = f.w.loop.Nano()
	in, out := &f.toBackend, &f.toClient
	if l == &f.back {
		in, out = out, in
	}
	out.Drop(f.w.kit) // nobody will read these
	in.Abortive = true
	in.Readable, in.Ended = true, true
	f.runSoon()
}

// noticeBroken asks which error the loop has reported of a leg. Reads and writes
// would find out too, but not while the other leg takes nothing: its peer may be
// stuck for good, and would keep a flow whose client has long gone.
func (f *tcpFlow) noticeBroken(l *leg) {
	if !l.broken || f.phase == phaseClosed {
		return
	}
	l.broken = false
	if errno, err := unix.GetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && errno != 0 {
		f.breaks(l, unix.Errno(errno))
	}
}

// linger waits until the leg that is whole has everything, then resets it.
func (f *tcpFlow) linger() {
	in, other := &f.toBackend, &f.back
	if f.broken == &f.back {
		in, other = &f.toClient, &f.front
	}
	unsent := 1
	if in.Done() {
		unsent = unacknowledged(other.fd)
	}
	if unsent < f.unsent {
		f.changed, f.lingered = f.w.loop.Nano(), 0 // it takes something
	}
	f.unsent = unsent
	if unsent == 0 || time.Duration(f.w.loop.Nano()-f.changed) >= f.fe.Service.Timeouts.HalfClosed {
		f.abort(f.endedBy, f.reason)
		return
	}
	f.lingered = min(max(firstLinger, 2*f.lingered), maxLinger)
	f.w.loop.Arm(&f.timer, f.lingered)
}

// unacknowledged is how many bytes a peer has not acknowledged yet.
func unacknowledged(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// unread is how many bytes wait to be read.
func unread(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// abort ends the flow now, with a reset to both sides.
func (f *tcpFlow) abort(by flow.By, why flow.Reason) {
	if f.phase == phaseClosed {
		return
	}
	if f.stopped { // the descriptors are an Offloader's now: Resume will see to it
		f.pending, f.endedBy, f.reason = true, by, why
		return
	}
	f.close(by, why)
}

// closeCleanly ends a flow that both sides have closed.
func (f *tcpFlow) closeCleanly() {
	f.mu.Lock()
	f.packets[toBackend] = closeCleanly(f.back.fd, f.packets[toBackend])
	f.packets[toClient] = closeCleanly(f.front.fd, f.packets[toClient])
	f.gone = true
	f.mu.Unlock()
	f.close(f.endedBy, flow.ReasonClosed)
}

// closeCleanly makes close(2) say goodbye, where TCP has not done so already, and
// returns how many packets the socket will have sent.
func closeCleanly(fd int, before uint64) (packets uint64) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		_ = setLingerReset(fd, false)
		return before
	}
	packets = uint64(info.Segs_out)
	switch info.State {
	case unix.BPF_TCP_CLOSE, unix.BPF_TCP_TIME_WAIT: // both goodbyes are said and heard
		return packets
	case unix.BPF_TCP_CLOSE_WAIT:
		packets++ // close(2) will send ours
	}
	_ = setLingerReset(fd, false)
	return packets
}

// setLingerReset makes close(2) send a reset, or not. Every socket of ours has it
// from the start: when the process dies, its peers must not take the end of a
// half-sent answer for a whole one.
func setLingerReset(fd int, on bool) error {
	linger := unix.Linger{}
	if on {
		linger.Onoff = 1
	}
	return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &linger)
}
