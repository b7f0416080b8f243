package relay

import (
	"time"

	"golang.org/x/sys/unix"
)

// minPeerCheck is the shortest time between two looks at the peers.
const minPeerCheck = 50 * time.Millisecond

// checkPeer tells a peer that pauses from one that is lost, and reports whether
// it is lost. To the kernel they are the same: TCP_USER_TIMEOUT also ends a
// connection to a peer that acknowledges every probe and only has no room for
// longer than that (tcp_probe_timer), as a player does that has been stopped. So
// the kernel's timeout is lifted while a peer pauses, and it is seen to here that
// its probes are answered.
func (f *tcpFlow) checkPeer(l *leg) (lost bool) {
	queued := unacknowledged(l.fd) > 0
	if !queued && !l.pauses {
		return false
	}
	info, err := unix.GetsockoptTCPInfo(l.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return false
	}
	limit := f.fe.Service.Timeouts.PeerLost
	// Nothing is in flight, though there is something to send: there is no room.
	if pauses := queued && info.Unacked == 0; pauses != l.pauses {
		f.setPauses(l, pauses)
	}
	silent := time.Duration(info.Last_ack_recv) * time.Millisecond
	if !l.pauses || info.Probes < 2 || silent < limit {
		return false
	}
	_ = unix.Shutdown(l.fd, unix.SHUT_RD) // nothing comes any more: what has come is all there is
	f.breaks(l, unix.ETIMEDOUT)
	return true
}

// setPauses lifts the kernel's timeout while the peer pauses.
func (f *tcpFlow) setPauses(l *leg, pauses bool) {
	l.pauses = pauses
	timeout := userTimeout(f.fe.Service.Timeouts.PeerLost)
	if pauses {
		timeout = 0
	}
	_ = unix.SetsockoptInt(l.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, timeout)
}
