package e2e

import (
	"net"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// A client that pauses for longer than a lost peer is waited for gets the rest
// of its answer; one that vanishes while it pauses is lost (T3, T4).
func TestPausedClient(t *testing.T) {
	const answer = 16 << 20
	bothPaths(t, 1, func(t *testing.T, w world) {
		w.Backends[0].Serve(8080, func(c net.Conn) { _, _ = testnet.SendBulk(c, 1, answer) })
		timeouts := "timeouts: {keepalive: 1s, peerLost: 2s}"
		if w.inKernel() { // where nobody of ours asks
			timeouts = "timeouts: {keepalive: 1s, peerLost: 2s, idle: 6s}"
		}
		b := start(t, w.Balancer, w.service(nil, timeouts))
		// The kernel asks at doubling intervals: the sooner a client vanishes the better.
		vanisher := w.AddClient("vanishing")
		pausing, vanishing := w.dial(t), w.dialFrom(t, vanisher)
		for _, c := range []*net.TCPConn{pausing, vanishing} {
			if err := c.SetReadBuffer(64 << 10); err != nil {
				t.Fatal(err)
			}
		}
		if !w.inKernel() { // there it has to wait until the client reads
			w.carried(b, pausing, vanishing)
		}
		time.Sleep(3500 * time.Millisecond)
		vanisher.Mute()
		if sum, err := testnet.ReceiveBulk(pausing); err != nil || sum != testnet.StreamSum(1, answer) {
			t.Errorf("after a pause: %v, %v", sum, err)
		}
		pausing.Close()
		wantEnd(t, b.endedOf(pausing.LocalAddr()), flow.ByBackend, flow.ReasonClosed)
		v := b.endedOf(vanishing.LocalAddr())
		if w.inKernel() && v.Reason == flow.ReasonIdle {
			return
		}
		wantEnd(t, v, flow.ByClient, flow.ReasonPeerLost)
	})
}
