package offload

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

const allOptions = optTimestamps | optSACK | 1<<2

// plain is one side of an ordinary flow: Ethernet on its way, a window scale of 7.
func plain() side {
	s := side{protocol: unix.IPPROTO_TCP}
	s.info.State, s.info.Options = unix.BPF_TCP_ESTABLISHED, allOptions
	s.info.Snd_mss, s.info.Advmss, s.info.Pmtu = 1448, 1460, 1500
	s.setScales(7, 7)
	return s
}

func (v *side) setScales(send, receive byte) {
	(*[8]byte)(unsafe.Pointer(&v.info.TCPInfo))[6] = receive<<4 | send
}

func TestWhyNot(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(client, backend *side)
		want   flow.NotOffloaded
	}{
		{"ordinary", func(c, b *side) {}, ""},
		{"client has closed", func(c, b *side) { c.info.State = unix.BPF_TCP_CLOSE_WAIT }, flow.NotOffloadedPeerGone},
		{"backend has reset", func(c, b *side) { b.info.State = unix.BPF_TCP_CLOSE }, flow.NotOffloadedPeerGone},
		{"MPTCP", func(c, b *side) { c.protocol = unix.IPPROTO_MPTCP }, flow.NotOffloadedOption},
		{"TLS in the kernel", func(c, b *side) { b.extra = true }, flow.NotOffloadedOption},
		{"data in the SYN", func(c, b *side) { c.info.Options |= optSYNData }, flow.NotOffloadedOption},
		{"ECN", func(c, b *side) { c.info.Options |= optECN }, flow.NotOffloadedECN},
		{"ECN seen", func(c, b *side) { b.info.Options |= optECNSeen }, flow.NotOffloadedECN},
		{"no timestamps anywhere", func(c, b *side) {
			c.info.Options &^= optTimestamps
			b.info.Options &^= optTimestamps
			c.info.Snd_mss, b.info.Snd_mss = 1460, 1460
		}, ""},
		{"timestamps on one side", func(c, b *side) { c.info.Options &^= optTimestamps }, flow.NotOffloadedTimestamps},
		{"timestamps of another unit", func(c, b *side) { b.info.Options |= optMicroseconds }, flow.NotOffloadedTimestamps},
		{"SACK on one side", func(c, b *side) { b.info.Options &^= optSACK }, flow.NotOffloadedSACK},
		{"no SACK anywhere", func(c, b *side) { c.info.Options &^= optSACK; b.info.Options &^= optSACK }, ""},
		{"backend's way is narrow", func(c, b *side) { b.info.Pmtu, b.info.Snd_mss = 1400, 1348 }, flow.NotOffloadedMSS},
		{"client asks for small segments", func(c, b *side) { c.info.Snd_mss = 536 }, flow.NotOffloadedMSS},
		{"client is told of small segments, its way is wide", func(c, b *side) {
			c.info.Advmss, b.info.Pmtu, b.info.Snd_mss = 1360, 1400, 1348
		}, ""},
		{"IPv6", func(c, b *side) {
			c.is6, b.is6 = true, true
			c.info.Advmss, b.info.Advmss, c.info.Snd_mss, b.info.Snd_mss = 1440, 1440, 1428, 1428
		}, ""},
		{"IPv6, segments of IPv4's size", func(c, b *side) { c.is6, b.is6 = true, true }, flow.NotOffloadedMSS},
		{"window in units of a segment at most", func(c, b *side) { c.setScales(0, 7); b.setScales(7, 10) }, ""},
		{"window in units of more than a segment", func(c, b *side) { c.setScales(0, 7); b.setScales(7, 11) }, flow.NotOffloadedWindow},
		{"such units on both sides", func(c, b *side) { c.setScales(14, 14); b.setScales(14, 14) }, ""},
		{"window of the backend", func(c, b *side) { b.setScales(2, 7); c.setScales(7, 14) }, flow.NotOffloadedWindow},
	} {
		c, b := plain(), plain()
		tt.change(&c, &b)
		if got := whyNot(&c, &b); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
