package datagram

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// An unconnected socket is told whose port is closed, and with which of its own
// addresses the datagram was sent.
func TestErrorQueue(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		n := testnet.New(t)
		a, b := n.Host("a"), n.Host("b")
		l := n.Connect(a, b)
		b.Sysctl("net.ipv4.icmp_ratelimit", "0")
		b.Sysctl("net.ipv6.icmp.ratelimit", "0")
		second := netip.MustParseAddr("10.202.0.77")
		if v6 {
			second = netip.MustParseAddr("fd00:202::77")
		}
		a.AddAddr(l.A.Dev, netip.PrefixFrom(second, second.BitLen()))
		fd, _ := socket(t, a, SocketParams{Local: wildcard(v6), Errors: true, PacketInfo: true})
		live, at := socket(t, b, SocketParams{Local: netip.AddrPortFrom(address(b, v6), 0)})
		s, r := new(Sender), NewReceiver()
		if f, ok := ReadError(fd); ok {
			t.Errorf("before anything was sent: %+v", f)
		}
		closed := netip.AddrPortFrom(at.Addr(), 9)
		for _, source := range []netip.Addr{address(a, v6), second} {
			to := NewName(closed)
			s.Add(Datagram{Data: []byte("x"), To: &to, Source: source})
			flush(t, s, fd, 1, 1)
			waitError(t, fd)
			f, ok := ReadError(fd)
			if want := (Failure{To: closed, Local: source, Err: unix.ECONNREFUSED}); !ok || f != want {
				t.Errorf("got %+v, %v; want %+v", f, ok, want)
			}
			if f, ok := ReadError(fd); ok {
				t.Errorf("a second time: %+v", f)
			}
		}
		// The error of one receiver does not keep another from getting what is sent.
		dead, to := NewName(closed), NewName(at)
		for range 20 {
			s.Add(Datagram{Data: []byte("x"), To: &dead})
			for s.Len() > 0 {
				_, _ = s.Flush(fd)
			}
			waitError(t, fd)
			s.Add(Datagram{Data: []byte("y"), To: &to})
			for s.Len() > 0 {
				_, _ = s.Flush(fd)
			}
			if got := collect(t, r, live, 1); string(got[0]) != "y" {
				t.Errorf("got %q", got)
			}
			for ok := true; ok; {
				_, ok = ReadError(fd)
			}
		}
	})
}

// What another host says of a datagram is told too: here that it will not carry it.
func TestErrorQueueOfARouter(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		star := testnet.NewStar(t, 1)
		to := netip.MustParseAddrPort("192.0.2.1:9")
		if v6 {
			to = netip.MustParseAddrPort("[2001:db8::1]:9")
		}
		fd, _ := connected(t, star.Client, SocketParams{Errors: true}, to)
		s := new(Sender)
		s.Add(Datagram{Data: []byte("x")})
		flush(t, s, fd, 1, 1)
		waitError(t, fd)
		f, ok := ReadError(fd)
		if !ok || f.To != to || f.Err != unix.ENETUNREACH && f.Err != unix.EHOSTUNREACH {
			t.Errorf("got %+v, %v", f, ok)
		}
	})
}
