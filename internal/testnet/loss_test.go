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
	_ = pc.(*net.UDPConn).SetReadBuffer(4 << 20)
	port := netip.MustParseAddrPort(pc.LocalAddr().String()).Port()
	loss := star.ClientLink.B.Lose(200)
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
	got := uint64(0)
	buf := make([]byte, 10)
	for {
		_ = pc.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, _, err := pc.ReadFrom(buf); err != nil {
			break
		}
		got++
	}
	lost, _ := loss.Dropped()
	if got+lost != 2*each || lost < 100 || lost > 300 {
		t.Errorf("of %d datagrams %d came and %d were lost; want a fifth lost", 2*each, got, lost)
	}

	srv := b.Serve(0, func(c net.Conn) { _, _ = SendBulk(c, 1, 1<<20) })
	c, err := star.Client.Dial("tcp", netip.AddrPortFrom(b.IP4, srv.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if sum, err := ReceiveBulk(c); err != nil || sum != StreamSum(1, 1<<20) {
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
