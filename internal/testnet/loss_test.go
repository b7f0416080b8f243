package testnet

import (
	"net"
	"net/netip"
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
	came := countDatagrams(pc)
	const each = 500
	for _, ip := range []netip.Addr{b.IP4, b.IP6} {
		c, err := star.Client.Dial("udp", netip.AddrPortFrom(ip, port))
		if err != nil {
			t.Fatal(err)
		}
		for range each {
			_, _ = c.Write([]byte("x"))
		}
		c.Close()
	}
	got := <-came
	lost, _ := loss.Dropped()
	if got+lost != 2*each || lost < 100 || lost > 300 {
		t.Errorf("of %d datagrams %d came and %d were lost; want a fifth lost", 2*each, got, lost)
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

// countDatagrams tells how many datagrams came before a second without any. It reads
// while they come, because few hosts let a buffer hold a thousand.
func countDatagrams(pc net.PacketConn) <-chan uint64 {
	result := make(chan uint64, 1)
	go func() {
		n := uint64(0)
		for buf := make([]byte, 10); ; n++ {
			_ = pc.SetReadDeadline(time.Now().Add(Patience(time.Second)))
			if _, _, err := pc.ReadFrom(buf); err != nil {
				break
			}
		}
		result <- n
	}()
	return result
}
