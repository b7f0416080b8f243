package testnet

import (
	"net/netip"
	"testing"
	"time"
)

func TestSolicitedNode(t *testing.T) {
	got := netip.AddrFrom16(solicitedNode(netip.MustParseAddr("2001:db8::1:2345:6789")))
	if want := netip.MustParseAddr("ff02::1:ff45:6789"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The first packet over a new link is not the one that gets lost.
func TestNeighboursAnswerAtOnce(t *testing.T) {
	n := New(t)
	a := n.Host("a")
	srv := a.Serve(0, Named("a"))
	for _, name := range []string{"b", "c", "d", "e"} {
		l := n.Connect(a, n.Host(name))
		for _, ip := range []netip.Addr{l.A.IP4, l.A.IP6} {
			began := time.Now()
			if _, err := l.B.Host.AskName(netip.AddrPortFrom(ip, srv.Port)); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 900*time.Millisecond {
				t.Errorf("%s answered after %v", ip, took)
			}
		}
	}
}
