package testnet

import (
	"io"
	"net"
	"net/netip"
	"testing"
)

// What does not fit the narrow link is refused by its router, and the sender heeds
// that: transfers both ways end.
func TestRouted(t *testing.T) {
	star := NewStar(t, 1)
	r := star.AddRouted("client2", LinkSpec{MTU: 1300})
	b := star.Backends[0]
	srv := b.Serve(0, func(c net.Conn) {
		_, _ = SendBulk(c, 1, 1<<20)
		closeWrite(c)
		_, _ = io.Copy(io.Discard, c)
	})
	atBackend := star.BackendLinks[0].B.Capture()
	for _, ip := range []netip.Addr{b.IP4, b.IP6} {
		before := len(atBackend.Frames())
		c, err := r.Client.Dial("tcp", netip.AddrPortFrom(ip, srv.Port))
		if err != nil {
			t.Fatal(err)
		}
		sum, err := ReceiveBulk(c)
		if err != nil || sum != StreamSum(1, 1<<20) {
			t.Errorf("from %s: %v, %v", ip, sum, err)
		}
		errors := 0
		for _, f := range atBackend.Frames()[before:] {
			if !f.Out && tcpFlags(f) == 0 {
				errors++
			}
		}
		if errors == 0 {
			t.Errorf("nobody told %s that its packets were too big", ip)
		}
		if _, err := SendBulk(c, 2, 1<<20); err != nil {
			t.Error(err)
		}
		c.Close()
	}
}

// Without offloads no packet is larger than the link.
func TestNoOffloads(t *testing.T) {
	star := NewStar(t, 1)
	b := star.Backends[0]
	srv := b.Serve(0, Sink)
	count := func() (packets uint64) {
		link, err := star.Client.nl.LinkByName(star.ClientLink.B.Dev)
		if err != nil {
			t.Fatal(err)
		}
		return link.Attrs().Statistics.TxPackets
	}
	send := func() uint64 {
		before := count()
		c, err := star.Client.Dial("tcp", netip.AddrPortFrom(b.IP4, srv.Port))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := SendBulk(c, 1, 4<<20); err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c) // the other side closes when it has all
		c.Close()
		return count() - before
	}
	const segments = (4 << 20) / 1448
	if n := send(); n > segments/2 {
		t.Errorf("with offloads 4 MiB leave in %d packets", n)
	}
	star.ClientLink.B.NoOffloads()
	if n := send(); n < segments {
		t.Errorf("without offloads 4 MiB leave in %d packets, want at least %d", n, segments)
	}
}
