package testnet

import (
	"net/netip"
	"testing"
	"time"
)

func TestMutedHostVanishesAndReturns(t *testing.T) {
	star := NewStar(t, 1)
	b := star.Backends[0]
	srv := b.Serve(0, Echo)
	for _, ip := range []netip.Addr{b.IP4, b.IP6} {
		c, err := star.Client.Dial("tcp", netip.AddrPortFrom(ip, srv.Port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := Ask(c, "before"); err != nil {
			t.Fatal(err)
		}
		b.Mute()
		_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
		if err := Ask(c, "during"); err == nil {
			t.Errorf("%s answers while mute", ip)
		}
		b.Unmute()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if line, err := readLine(c); line != "during" || err != nil {
			t.Errorf("%s answers %q, %v when it is back", ip, line, err)
		}
	}
}
