package testnet

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// Of many datagrams about as many are lost as was asked, and each is counted; a
// transfer ends well all the same.
func TestLoss(t *testing.T) {
	star := NewStar(t, 1)
	b := star.Backends[0]
	pc, err := b.ListenPacket("udp", netip.AddrPortFrom(netip.Addr{}, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	port := netip.MustParseAddrPort(pc.LocalAddr().String()).Port()
	loss := star.ClientLink.B.Lose(200)
	var came atomic.Uint64
	go countDatagrams(pc, &came)
	const each, burst = 500, 50 // of which every host can queue one
	sent := uint64(0)
	for _, ip := range []netip.Addr{b.IP4, b.IP6} {
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
				lost, _ := loss.Dropped()
				if got := came.Load(); got+lost != sent {
					return fmt.Errorf("of %d datagrams %d came and %d were lost", sent, got, lost)
				}
				return nil
			})
		}
	}
	if lost, _ := loss.Dropped(); lost < sent/10 || lost > sent*3/10 {
		t.Errorf("of %d datagrams %d were lost; want a fifth", sent, lost)
	}

	size := int64(Scaled(1 << 20))
	srv := b.Serve(0, func(c net.Conn) { _, _ = SendBulk(c, 1, size) })
	c, err := star.Client.Dial("tcp", netip.AddrPortFrom(b.IP4, srv.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if sum, err := ReceiveBulk(c); err != nil || sum != StreamSum(1, size) {
		t.Errorf("a transfer with loss: %v, %v", sum, err)
	}
	if _, in := loss.Dropped(); in == 0 {
		t.Error("nothing that arrives is lost")
	}
	loss.Stop()
	before, _ := loss.Dropped()
	c, err = star.Client.Dial("udp", netip.AddrPortFrom(b.IP4, port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 100 {
		_, _ = c.Write([]byte("x"))
	}
	if after, _ := loss.Dropped(); after != before {
		t.Errorf("%d packets are lost after the end of it", after-before)
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
