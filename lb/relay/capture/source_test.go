package capture

import (
	"net/netip"
	"testing"

	"github.com/baton-lb/baton/internal/testnet"
)

func TestSource(t *testing.T) {
	testnet.RequireRoot(t)
	s := testnet.NewStar(t, 1)
	lb, backend := s.Balancer, s.Backends[0]
	check := func(what string, h *testnet.Host, want4, want6 netip.Addr) {
		t.Helper()
		host, err := readHost(h.Netlink())
		if err != nil {
			t.Fatal(err)
		}
		if got := host.source(true, nil); got != want4 {
			t.Errorf("%s: IPv4 source is %s, want %s", what, got, want4)
		}
		if got := host.source(false, nil); got != want6 {
			t.Errorf("%s: IPv6 source is %s, want %s", what, got, want6)
		}
	}
	port := s.BackendLinks[0].A
	check("no default route: the first device", lb, lb.IP4, lb.IP6)
	lb.DefaultVia(backend.IP4)
	lb.DefaultVia(backend.IP6)
	check("the device of the default route", lb, port.IP4, port.IP6)
	lb.AddAddr(port.Dev, netip.MustParsePrefix("192.0.2.9/32"))
	check("another address there", lb, port.IP4, port.IP6)

	lone := testnet.New(t).Host("lone")
	check("loopback alone", lone, addr("127.0.0.1"), netip.Addr{})
	lone.AddAddr("lo", netip.MustParsePrefix("192.0.2.1/32"))
	lone.AddAddr("lo", netip.MustParsePrefix("fd00::1/128"))
	check("global addresses on loopback", lone, addr("192.0.2.1"), addr("fd00::1"))
}

// TestSourceIsNoVIP: an address that is wanted as a VIP is no hint.
func TestSourceIsNoVIP(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("lone")
	h.AddAddr("lo", netip.MustParsePrefix("192.0.2.1/32"))
	host, err := readHost(h.Netlink())
	if err != nil {
		t.Fatal(err)
	}
	if got := host.source(true, map[netip.Addr]bool{addr("192.0.2.1"): true}); got != addr("127.0.0.1") {
		t.Errorf("got %s", got)
	}
}

// TestSourceChanges: the address of the hint goes away, and Ensure gives the routes another.
func TestSourceChanges(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("lone")
	h.AddAddr("lo", netip.MustParsePrefix("192.0.2.1/32"))
	h.AddAddr("lo", netip.MustParsePrefix("fd00::1/128"))
	r, _ := open(t, h, "")
	vip4, vip6 := addr("10.96.0.10"), addr("fd96::10")
	ensure(t, r, vip4, vip6)
	if got := localRoutes(t, h, true); got[vip4] != addr("192.0.2.1") || got[vip6] != addr("fd00::1") {
		t.Fatalf("routes are %v", got)
	}
	delAddr(t, h, "lo", "192.0.2.1/32")
	delAddr(t, h, "lo", "fd00::1/128")
	if got := ensure(t, r, vip4, vip6); got.Replaced != 1 { // IPv6 has dropped the hint by itself
		t.Errorf("%+v", got)
	}
	if got := localRoutes(t, h, true); len(got) != 2 || got[vip4] != addr("127.0.0.1") || got[vip6].IsValid() {
		t.Errorf("routes are %v", got)
	}
	for _, vip := range []netip.Addr{vip4, vip6} {
		l := listenOn(t, h, netip.AddrPortFrom(vip, 80), ListenParams{AnyIP: true})
		conn, err := h.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if source := netip.MustParseAddrPort(conn.LocalAddr().String()).Addr(); !source.IsLoopback() {
			t.Errorf("%s is reached from %s", vip, source)
		}
		_ = conn.Close()
	}
	// It comes back, and with it the better hint.
	h.AddAddr("lo", netip.MustParsePrefix("fd00::1/128"))
	if got := ensure(t, r, vip4, vip6); got.Replaced != 1 || localRoutes(t, h, true)[vip6] != addr("fd00::1") {
		t.Errorf("%+v, routes %v", got, localRoutes(t, h, true))
	}
}
