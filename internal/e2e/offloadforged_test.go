package e2e

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/baton-lb/baton/internal/flow"
)

// Who guesses the addresses and ports of a flow in the kernel, and not its sequence
// numbers, ends nothing: not by a reset, not by a FIN, not by a new SYN.
func TestOffloadForgedSegments(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = inKernel
		w.serveNamed()
		atClient := w.wire(t, w.ClientLink.B)
		b := start(t, w.Balancer, w.service(nil))
		c, _ := w.named(t)
		before := w.carried(b, c.TCPConn)[0]
		seq, ok := atClient.sequence(t, w.vip)
		if !ok {
			t.Fatal("no SYN was seen")
		}
		from := netip.MustParseAddrPort(c.LocalAddr().String())
		var forged [][]byte
		for _, distance := range []uint32{100, 20_000, 1 << 20, 1 << 31, 1<<32 - 5000} {
			at := seq + distance
			for _, s := range []layers.TCP{{RST: true}, {RST: true, ACK: true, Ack: 7}, {FIN: true, ACK: true, Ack: 7}, {SYN: true}, {SYN: true, ACK: true, Ack: 7}} {
				s.Seq, s.Window = at, 1000
				forged = append(forged, w.tcpPacket(t, from, s))
			}
		}
		w.sendPackets(t, forged...)
		for range 3 {
			c.works(t)
		}
		if v := w.carried(b, c.TCPConn)[0]; v.ID != before.ID {
			t.Errorf("the flow was %+v and is %+v", before, v)
		}
		c.ends(t)
		v := b.endedOf(c.LocalAddr())
		wantEnd(t, v, flow.ByClient, flow.ReasonClosed)
		if v.BytesToBackend != uint64(3*len("are you there\n")) {
			t.Errorf("the forged segments are counted: %+v", v)
		}
	})
}

// Nor does a made-up reset keep a flow from its handoff that is watched before it: here
// because its client does without timestamps, as the backend's side then has to.
func TestOffloadForgedResetWhileWatched(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.Client.Sysctl("net.ipv4.tcp_timestamps", "0")
		w.serveNamed()
		atClient := w.wire(t, w.ClientLink.B)
		b := start(t, w.Balancer, w.service(nil, "offload: {afterAge: 2s, afterBytes: 0}"))
		c, _ := w.named(t)
		seq, ok := atClient.sequence(t, w.vip)
		if !ok {
			t.Fatal("no SYN was seen")
		}
		from := netip.MustParseAddrPort(c.LocalAddr().String())
		w.sendPackets(t, w.tcpPacket(t, from, layers.TCP{RST: true, Seq: seq + 1<<30}))
		b.inKernelNow(c.LocalAddr())
		c.works(t)
		c.ends(t)
		wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByClient, flow.ReasonClosed)
	})
}

// sequence is the number of the last SYN that was sent to an address.
func (w wire) sequence(t *testing.T, to netip.AddrPort) (seq uint32, ok bool) {
	t.Helper()
	for _, s := range w.segments(t) {
		if s.out && s.tcp != nil && s.tcp.SYN && s.to == to {
			seq, ok = s.tcp.Seq, true
		}
	}
	return seq, ok
}
