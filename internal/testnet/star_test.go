package testnet

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
)

func TestStarReachesEveryBackend(t *testing.T) {
	star := NewStar(t, 3)
	for i, b := range star.Backends {
		b.Serve(8080, Named(b.Name()))
		for _, ip := range []netip.Addr{b.IP4, b.IP6} {
			name, err := star.Client.AskName(netip.AddrPortFrom(ip, 8080))
			if want := fmt.Sprintf("backend%d", i+1); err != nil || name != want {
				t.Errorf("%s answers %q, %v; want %q", ip, name, err, want)
			}
		}
	}
	if got, want := star.Backends[0].IP4.String(), "10.202.1.2"; got != want {
		t.Errorf("the first backend is %s, want %s", got, want)
	}
}

func TestStarBackendsKeepTheClientAddress(t *testing.T) {
	star := NewStar(t, 1)
	seen := make(chan netip.Addr, 2)
	b := star.Backends[0]
	srv := b.Serve(0, func(c net.Conn) {
		seen <- netip.MustParseAddrPort(c.RemoteAddr().String()).Addr().Unmap()
	})
	for i, ip := range []netip.Addr{b.IP4, b.IP6} {
		c, err := star.Client.Dial("tcp", netip.AddrPortFrom(ip, srv.Port))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		want := []netip.Addr{star.Client.IP4, star.Client.IP6}[i]
		if got := <-seen; got != want {
			t.Errorf("backend saw %s, want %s", got, want)
		}
	}
}
