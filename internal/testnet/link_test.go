package testnet

import (
	"net"
	"net/netip"
	"testing"
)

func TestLinkMTU(t *testing.T) {
	n := New(t)
	a, b := n.Host("a"), n.Host("b")
	l := n.Link(a, b, LinkSpec{MTU: 1280})
	for _, p := range []Port{l.A, l.B} {
		p.Host.Do(func() {
			ifi, err := net.InterfaceByName(p.Dev)
			if err != nil || ifi.MTU != 1280 {
				t.Errorf("%s of %s: %+v, %v; want MTU 1280", p.Dev, p.Host.Name(), ifi, err)
			}
		})
	}
}

func TestLinksAreNumbered(t *testing.T) {
	n := New(t)
	a, b := n.Host("a"), n.Host("b")
	first, second := n.Connect(a, b), n.Connect(a, b)
	if first.A.Dev != "eth0" || second.B.Dev != "eth1" {
		t.Errorf("devices %s and %s", first.A.Dev, second.B.Dev)
	}
	if first.Net4.Overlaps(second.Net4) || first.Net6.Overlaps(second.Net6) {
		t.Errorf("subnets overlap: %v %v", first, second)
	}
	if a.IP4 != first.A.IP4 || a.IP6 != first.A.IP6 {
		t.Errorf("a is %s and %s, want the addresses of its first link", a.IP4, a.IP6)
	}
}

func TestSubnetsPastTheFirst256(t *testing.T) {
	n := &Net{links: 257}
	v4, v6 := n.subnets()
	if v4.String() != "10.203.1.0/24" || v6 != netip.MustParsePrefix("fd00:202:101::/64") {
		t.Errorf("got %s and %s", v4, v6)
	}
}

func TestUnpluggedPort(t *testing.T) {
	n := New(t)
	a, b := n.Host("a"), n.Host("b")
	l := n.Connect(a, b)
	srv := b.Serve(0, Named("b"))
	l.A.SetUp(false)
	if _, err := a.AskName(netip.AddrPortFrom(b.IP4, srv.Port)); err == nil {
		t.Error("b answers through a port that is down")
	}
	l.A.SetUp(true)
	for _, ip := range []netip.Addr{b.IP4, b.IP6} {
		if name, err := a.AskName(netip.AddrPortFrom(ip, srv.Port)); name != "b" || err != nil {
			t.Errorf("plugged in again, %s answers %q, %v", ip, name, err)
		}
	}
}
