package offload

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

// side is what one socket of a flow has negotiated with its peer.
type side struct {
	info     tcpInfo
	protocol int  // IPPROTO_TCP, or IPPROTO_MPTCP
	extra    bool // an upper-layer protocol (TLS) or authentication (TCP-AO) is on
	is6      bool
}

// inspect looks at a socket. The peer's keys of TCP MD5 signatures (RFC 2385) cannot
// be asked for; they would have to be set by this process, which never does so.
func (s socket) inspect(is6 bool) (v side, err error) {
	v.is6 = is6
	if v.protocol, err = s.getInt(unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil {
		return v, err
	}
	if err = s.info(&v.info); err != nil {
		return v, err
	}
	v.extra = s.hasULP() || s.hasAO()
	return v, nil
}

// trip is the shortest time in which the peer was seen to answer. While a flow is held
// or moved in steps its answers come later than that.
func (v *side) trip() time.Duration {
	return time.Duration(min(v.info.Min_rtt, v.info.Rtt)) * time.Microsecond
}

// headers is the size of the IP and TCP headers of a packet without options.
func (v *side) headers() uint32 {
	if v.is6 {
		return 40 + 20
	}
	return 20 + 20
}

// timestampOption is how much of each segment TCP timestamps take, with padding.
const timestampOption = 12

// takes is the largest segment, without TCP options, that may be sent to the peer:
// what it asked for and what fits its way.
func (v *side) takes() uint32 {
	mss := v.info.Snd_mss
	if v.info.has(optTimestamps) {
		mss += timestampOption
	}
	return min(mss, v.info.Pmtu-min(v.info.Pmtu, v.headers()))
}

// whyNot says why a flow with these two sides cannot leave userspace; "" = it can.
func whyNot(client, backend *side) flow.NotOffloaded {
	c, b := &client.info, &backend.info
	switch {
	case c.State != unix.BPF_TCP_ESTABLISHED || b.State != unix.BPF_TCP_ESTABLISHED:
		return flow.NotOffloadedPeerGone
	case client.odd() || backend.odd():
		return flow.NotOffloadedOption
	case (c.Options|b.Options)&(optECN|optECNSeen) != 0:
		return flow.NotOffloadedECN
	case (c.Options^b.Options)&(optTimestamps|optMicroseconds) != 0:
		return flow.NotOffloadedTimestamps
	case (c.Options^b.Options)&optSACK != 0:
		return flow.NotOffloadedSACK
	case c.Advmss > backend.takes() || b.Advmss > client.takes():
		return flow.NotOffloadedMSS
	case coarse(c, b) || coarse(b, c):
		return flow.NotOffloadedWindow
	}
	return ""
}

// odd reports whether the socket does more than plain TCP.
func (v *side) odd() bool {
	return v.protocol != unix.IPPROTO_TCP || v.extra || v.info.has(optSYNData)
}

// shift is how far a window that one side advertises has to be shifted for the
// other: it was told our scale, not that of its new peer.
func shift(from, to *tcpInfo) int8 { return from.sendScale() - to.receiveScale() }

// coarse reports whether windows that one side advertises, in units of its own, are
// told to the other in units of more than a segment. A receiver whose window has
// room for no such unit would look like one that has closed its window, and the
// answers to the sender's probes would say so for ever. One that has room for a
// segment always gets through: it announces when its window has grown by that much
// (RFC 9293, section 3.8.6.2.2).
func coarse(from, to *tcpInfo) bool {
	return shift(from, to) < 0 && 1<<to.receiveScale() > to.Advmss
}

func (s socket) hasULP() bool {
	name, err := unix.GetsockoptString(int(s), unix.IPPROTO_TCP, unix.TCP_ULP)
	return err == nil && name != ""
}

// hasAO reports whether the connection is authenticated with TCP-AO (RFC 5925;
// Linux 6.7).
func (s socket) hasAO() bool {
	const tcpAOInfo = 40 // TCP_AO_INFO
	var info [56]byte    // struct tcp_ao_info_opt
	return s.get(unix.IPPROTO_TCP, tcpAOInfo, unsafe.Pointer(&info), uintptr(len(info))) == nil
}
