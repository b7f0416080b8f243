package offload

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/baton-lb/baton/offload/bpf"
)

func TestResetPacket(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		want     []byte
	}{
		{"10.96.0.10:80", "10.202.0.2:40000", []byte{
			0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 96, 0, 10, 10, 202, 0, 2,
			0, 80, 0x9c, 0x40, 1, 2, 3, 4, 0, 0, 0, 0, 0x50, 4, 0, 0, 0, 0, 0, 0,
		}},
		{"[fd96::10]:80", "[fd00::2]:40000", []byte{
			0x60, 0, 0, 0, 0, 20, 6, 64,
			0xfd, 0x96, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
			0, 80, 0x9c, 0x40, 1, 2, 3, 4, 0, 0, 0, 0, 0x50, 4, 0, 0, 0, 0, 0, 0,
		}},
	} {
		from, to := netip.MustParseAddrPort(tt.from), netip.MustParseAddrPort(tt.to)
		p := segment(from, to, 0x01020304, flagRST)
		if !slices.Equal(p[:len(p)-4], tt.want[:len(p)-4]) {
			t.Errorf("%x\nwant\n%x", p, tt.want)
		}
		addrs := slices.Concat(from.Addr().AsSlice(), to.Addr().AsSlice())
		if sum := tcpChecksum(addrs, p[len(p)-tcpHeader:]); sum != 0 {
			t.Errorf("checksum over all is %#x", sum)
		}
	}
}

// A reset has the number that its receiver expects, and the other one that it may.
func TestExpected(t *testing.T) {
	none := &bpf.DirectionState{}
	said := &bpf.DirectionState{HasAck: true, Ack: 500}
	for _, tt := range []struct {
		name string
		sent *bpf.DirectionState
		said *bpf.DirectionState
		want []uint32
	}{
		{"no packet yet", none, none, []uint32{77}},
		{"nothing was sent since", none, said, []uint32{500}},
		{"all was acknowledged", &bpf.DirectionState{HasEnd: true, Forwarded: true, End: 490}, said, []uint32{500}},
		{"something is on its way", &bpf.DirectionState{HasEnd: true, Forwarded: true, End: 590}, said, []uint32{500, 600}},
		{"what came before the handoff does not count", &bpf.DirectionState{HasEnd: true, End: 590}, said, []uint32{500}},
	} {
		if got := expected(77, 10, tt.sent, tt.said); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
