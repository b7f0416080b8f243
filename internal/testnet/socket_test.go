package testnet

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestListenIsPlainTCP(t *testing.T) {
	h := New(t).Host("a")
	ln, err := h.Listen("tcp", netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	rc, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := rc.Control(func(fd uintptr) {
		proto, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL)
		if err != nil || proto != unix.IPPROTO_TCP {
			t.Errorf("protocol %d, %v; want %d", proto, err, unix.IPPROTO_TCP)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

func TestListenPacket(t *testing.T) {
	n := New(t)
	a, b := n.Host("a"), n.Host("b")
	l := n.Connect(a, b)
	for _, ip := range []netip.Addr{l.B.IP4, l.B.IP6} {
		pc, err := b.ListenPacket("udp", netip.AddrPortFrom(ip, 0))
		if err != nil {
			t.Fatal(err)
		}
		defer pc.Close()
		c, err := a.Dial("udp", pc.LocalAddr().(*net.UDPAddr).AddrPort())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		_ = pc.SetReadDeadline(time.Now().Add(5 * time.Second))
		var buf [16]byte
		k, from, err := pc.ReadFrom(buf[:])
		if err != nil || string(buf[:k]) != "hello" || from.String() != c.LocalAddr().String() {
			t.Errorf("got %q from %v, %v", buf[:k], from, err)
		}
	}
}

func TestDialFromAddress(t *testing.T) {
	n := New(t)
	a, b := n.Host("a"), n.Host("b")
	l := n.Connect(a, b)
	from := netip.MustParseAddrPort("192.0.2.1:4242")
	a.AddAddr("lo", netip.PrefixFrom(from.Addr(), 32))
	b.AddRoute(netip.PrefixFrom(from.Addr(), 32), l.A.IP4)
	seen := make(chan string, 1)
	srv := b.Serve(0, func(c net.Conn) { seen <- c.RemoteAddr().String() })
	c, err := a.DialContext(t.Context(), "tcp", from, netip.AddrPortFrom(l.B.IP4, srv.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := <-seen; got != from.String() {
		t.Errorf("the server saw %s, want %s", got, from)
	}
}

// A dial into a host costs two setns(2) beyond the dial itself.
func BenchmarkDial(b *testing.B) {
	h := New(b).Host("a")
	addr := loopback(h.Serve(0, Sink).Port)
	for b.Loop() {
		c, err := h.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		Reset(c)
	}
}
