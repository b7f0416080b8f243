package testnet

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// Of many datagrams about as many are lost as was asked, each is counted in the
// direction it had at that port, and afterwards none is lost.
func TestLoss(t *testing.T) {
	star := NewStar(t, 1)
	b := star.Backends[0]
	pc, err := b.ListenPacket("udp", netip.AddrPortFrom(netip.Addr{}, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	port := netip.MustParseAddrPort(pc.LocalAddr().String()).Port()
	var came atomic.Uint64
	go countDatagrams(pc, &came)
	const each, burst = 500, 50 // of which every host can queue one
	for _, tt := range []struct {
		name string
		port Port
		lost func(*Loss) (lost, other uint64)
	}{
		{"leaving", star.ClientLink.B, (*Loss).Dropped},
		{"arriving", star.BackendLinks[0].B, func(l *Loss) (uint64, uint64) {
			out, in := l.Dropped()
			return in, out
		}},
	} {
		loss := tt.port.Lose(200)
		sent, before := uint64(0), came.Load()
		send := func(ip netip.Addr, losing bool) {
			t.Helper()
			c, err := star.Client.Dial("udp", netip.AddrPortFrom(ip, port))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range each / burst {
				for range burst {
					_, _ = c.Write([]byte("x"))
				}
				sent += burst
				Eventually(t, 5*time.Second, "each datagram has come or is counted", func() error {
					lost, _ := tt.lost(loss)
					if got := came.Load() - before; got+lost != sent {
						return fmt.Errorf("%s, losing %v: of %d datagrams %d came and %d were lost", tt.name, losing, sent, got, lost)
					}
					return nil
				})
			}
		}
		send(b.IP4, true)
		send(b.IP6, true)
		lost, other := tt.lost(loss)
		if lost < sent/10 || lost > sent*3/10 || other != 0 {
			t.Errorf("%s: of %d datagrams %d were lost, and %d of the other direction; want a fifth, and 0", tt.name, sent, lost, other)
		}
		loss.Stop()
		send(b.IP4, false)
		if after, _ := tt.lost(loss); after != lost {
			t.Errorf("%s: %d datagrams are lost after the end of it", tt.name, after-lost)
		}
	}
}

// A transfer ends well all the same. So few packets are lost that TCP does not give up.
func TestTransferWithLoss(t *testing.T) {
	star := NewStar(t, 1)
	b := star.Backends[0]
	star.ClientLink.B.Lose(10)
	size := int64(Scaled(1 << 20))
	srv := b.Serve(0, func(c net.Conn) { _, _ = SendBulk(c, 1, size) })
	c, err := star.Client.Dial("tcp", netip.AddrPortFrom(b.IP4, srv.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if sum, err := ReceiveBulk(c); err != nil || sum != StreamSum(1, size) {
		t.Errorf("%v, %v", sum, err)
	}
}

// countDatagrams counts what comes until the socket is closed.
func countDatagrams(pc net.PacketConn, n *atomic.Uint64) {
	for buf := make([]byte, 10); ; n.Add(1) {
		if _, _, err := pc.ReadFrom(buf); err != nil {
			return
		}
	}
}
