package capture

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

var vipTests = []struct{ family, vip, other, third string }{
	{"IPv4", "10.96.0.10", "10.96.0.11", "10.96.0.12"},
	{"IPv6", "fd96::10", "fd96::11", "fd96::12"},
}

// TestEnsure goes through the life of the routes: made, kept, changed, removed, for both families.
func TestEnsure(t *testing.T) {
	testnet.RequireRoot(t)
	for _, tt := range vipTests {
		t.Run(tt.family, func(t *testing.T) {
			s := testnet.NewStar(t, 1)
			lb := s.Balancer
			a, b, c := addr(tt.vip), addr(tt.other), addr(tt.third)
			hint := lb.IP6
			if a.Is4() {
				hint = lb.IP4
			}
			r, _ := open(t, lb, t.TempDir())
			if got := ensure(t, r, a, b); got.Added != 2 || got.Routed != 2 {
				t.Fatalf("first: %+v", got)
			}
			if got := localRoutes(t, lb, true); !maps.Equal(got, map[netip.Addr]netip.Addr{a: hint, b: hint}) {
				t.Fatalf("routes are %v", got)
			}
			if got := ensure(t, r, b, a, a); got.Added+got.Replaced+got.Removed != 0 || got.Routed != 2 {
				t.Fatalf("again: %+v", got)
			}
			if got := ensure(t, r, c, b); got.Added != 1 || got.Removed != 1 || got.Routed != 2 {
				t.Fatalf("another: %+v", got)
			}
			if got := localRoutes(t, lb, true); len(got) != 2 || !got[c].IsValid() || got[a].IsValid() {
				t.Fatalf("routes are %v", got)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if got := localRoutes(t, lb, true); len(got) != 0 {
				t.Fatalf("left behind: %v", got)
			}
			if _, err := r.Ensure(nil); err == nil {
				t.Fatal("Ensure after Close is fine")
			}
			if err := errors.Join(r.Close(), r.Detach()); err != nil {
				t.Fatalf("closed twice: %v", err)
			}
		})
	}
}

// TestOtherTables: everything is local in a table for marked packets, as a transparent proxy has it, and VIPs want routes
// all the same.
func TestOtherTables(t *testing.T) {
	testnet.RequireRoot(t)
	for _, tt := range vipTests {
		t.Run(tt.family, func(t *testing.T) {
			lb := testnet.New(t).Host("lb")
			vip := addr(tt.vip)
			lo, err := lb.Netlink().LinkByName("lo")
			if err != nil {
				t.Fatal(err)
			}
			any := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			if vip.Is4() {
				any = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			}
			err = lb.Netlink().RouteAdd(&netlink.Route{
				LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: 100, Scope: unix.RT_SCOPE_HOST,
				Dst: &net.IPNet{IP: any.Addr().AsSlice(), Mask: net.CIDRMask(0, any.Addr().BitLen())},
			})
			if err != nil {
				t.Fatal(err)
			}
			r, _ := open(t, lb, t.TempDir())
			if got := ensure(t, r, vip); got.Routed != 1 || len(got.Local) != 0 {
				t.Errorf("%+v", got)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestConnectionsReachTheVIP: a client, and the host itself with another address than the VIP's as its source.
func TestConnectionsReachTheVIP(t *testing.T) {
	testnet.RequireRoot(t)
	s := testnet.NewStar(t, 1)
	for _, tt := range vipTests {
		t.Run(tt.family, func(t *testing.T) {
			vip := addr(tt.vip)
			r, _ := open(t, s.Balancer, "")
			ensure(t, r, vip)
			l := listenOn(t, s.Balancer, netip.AddrPortFrom(vip, 80), ListenParams{AnyIP: true})
			for _, from := range []*testnet.Host{s.Client, s.Balancer} {
				conn, err := from.Dial("tcp", l.Addr())
				if err != nil {
					t.Fatal(err)
				}
				source := netip.MustParseAddrPort(conn.LocalAddr().String()).Addr()
				if source != from.IP4 && source != from.IP6 {
					t.Errorf("%s comes from %s", from.Name(), source)
				}
				_ = conn.Close()
			}
		})
	}
}

// TestAdoption: a process dies without closing; the next one keeps the wanted routes, which are never gone meanwhile, and
// prunes the others. What is not ours stays, whatever happens.
func TestAdoption(t *testing.T) {
	testnet.RequireRoot(t)
	for _, tt := range vipTests {
		t.Run(tt.family, func(t *testing.T) {
			lb := testnet.NewStar(t, 0).Balancer
			state := t.TempDir()
			foreign := addr(tt.third)
			addForeign(t, lb, netip.PrefixFrom(foreign, foreign.BitLen()).String())
			dead, _ := open(t, lb, state)
			if _, err := dead.Ensure(addrs(tt.vip, tt.other)); err != nil {
				t.Fatal(err)
			}
			if err := dead.Detach(); err != nil {
				t.Fatal(err)
			}

			r, k := open(t, lb, state)
			if got := localRoutes(t, lb, true); len(got) != 2 {
				t.Fatalf("opening changed the routes to %v", got)
			}
			k.fail = func(call string, _ *netlink.Route) bool { return call == "RouteAdd" || call == "RouteReplace" }
			report, err := r.Ensure(addrs(tt.vip, tt.third))
			if err != nil || report.Routed != 1 || report.Removed != 1 || report.Local[foreign] == "" {
				t.Fatalf("%+v, %v", report, err)
			}
			if got := localRoutes(t, lb, true); len(got) != 1 || !got[addr(tt.vip)].IsValid() {
				t.Fatalf("routes are %v", got)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if got := localRoutes(t, lb, false); len(got) != 1 {
				t.Fatalf("routes of others are %v", got)
			}
		})
	}
}

// TestRefusedAndLocal: VIPs that get no route, each with its reason, while the others get theirs.
func TestRefusedAndLocal(t *testing.T) {
	testnet.RequireRoot(t)
	s := testnet.NewStar(t, 1)
	client := s.Client                          // it has gateways
	lastIn := func(p netip.Prefix) netip.Addr { // of a /24
		b := p.Masked().Addr().As4()
		b[3] = 255
		return netip.AddrFrom4(b)
	}
	addForeign(t, client, "172.20.0.0/16")
	refused := map[netip.Addr]error{
		client.IP4: ErrHostAddress, client.IP6: ErrHostAddress,
		s.ClientLink.A.IP4: ErrGateway, s.ClientLink.A.IP6: ErrGateway,
		lastIn(s.ClientLink.Net4):           ErrNotUnicast,
		s.ClientLink.Net6.Masked().Addr():   ErrNotUnicast, // a router's anycast address, only on a router
		addr("224.0.0.5"):                   ErrNotUnicast,
		addr("fe80::5"):                     ErrNotUnicast,
		addr("0.0.0.0"):                     ErrNotUnicast,
		netip.IPv6LinkLocalAllNodes():       ErrNotUnicast,
		netip.MustParseAddr("fe80::5%eth0"): ErrNotUnicast,
	}
	client.Forwarding(true) // makes it have the anycast address
	local := addrs("127.0.0.7", "::1", "172.20.3.4")
	routed := addrs("10.96.0.10", "fd96::10")
	r, _ := open(t, client, "")
	report, err := r.Ensure(slices.Concat(slices.Collect(maps.Keys(refused)), local, routed))
	if err != nil {
		t.Fatal(err)
	}
	for vip, want := range refused {
		if !errors.Is(report.Refused[vip], want) {
			t.Errorf("%s: %v, want %v", vip, report.Refused[vip], want)
		}
	}
	for _, vip := range local {
		if report.Local[vip] == "" {
			t.Errorf("%s is not reported as local", vip)
		}
	}
	if report.Added != len(routed) || len(report.Refused) != len(refused) || len(report.Local) != len(local) {
		t.Errorf("%+v", report)
	}
	if len(report.Warnings) != 1 { // about 172.20.0.0/16
		t.Errorf("warnings: %q", report.Warnings)
	}
}

// TestConfiguredLater: an address that is configured while a route of ours is there is served all the same, and the
// address outlives the route.
func TestConfiguredLater(t *testing.T) {
	testnet.RequireRoot(t)
	for _, tt := range vipTests {
		t.Run(tt.family, func(t *testing.T) {
			lb := testnet.NewStar(t, 0).Balancer
			vip := addr(tt.vip)
			r, _ := open(t, lb, "")
			ensure(t, r, vip)
			lb.AddAddr("eth0", netip.PrefixFrom(vip, vip.BitLen()))
			waitKernelRoute(t, lb, vip)
			if got := ensure(t, r, vip); got.Routed != 1 || got.Local[vip] != "address of eth0" {
				t.Fatalf("%+v", got)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			host, err := readHost(lb.Netlink())
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := host.Configured(vip); !ok || len(host.ours) != 0 {
				t.Fatalf("configured %v, ours %v", ok, host.ours)
			}
			l := listenOn(t, lb, netip.AddrPortFrom(vip, 80), ListenParams{})
			conn, err := lb.Dial("tcp", l.Addr())
			if err != nil {
				t.Fatalf("the address no longer works: %v", err)
			}
			_ = conn.Close()
		})
	}
}

// waitKernelRoute waits for the local route of a configured address: for IPv6 a worker of the kernel makes it.
func waitKernelRoute(t *testing.T, h *testnet.Host, a netip.Addr) {
	t.Helper()
	testnet.Eventually(t, 5*time.Second, "the kernel's route", func() error {
		filter := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: unix.RTPROT_KERNEL}
		routes, err := h.Netlink().RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		if err == nil && !slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Dst.IP.Equal(a.AsSlice()) }) {
			err = errors.New("not there")
		}
		return err
	})
}

// TestFaults: when the kernel fails a call, what is left is either as before or as wanted, and the next Ensure heals it.
func TestFaults(t *testing.T) {
	testnet.RequireRoot(t)
	for _, tt := range vipTests {
		t.Run(tt.family, func(t *testing.T) {
			lb := testnet.NewStar(t, 0).Balancer
			state := t.TempDir()
			a, b, c := addr(tt.vip), addr(tt.other), addr(tt.third)
			r, k := open(t, lb, state)

			k.fail = func(call string, _ *netlink.Route) bool { return call == "RouteAdd" }
			report, err := r.Ensure([]netip.Addr{a, b})
			if err != nil || len(report.Refused) != 2 || !errors.Is(report.Refused[a], errFault) {
				t.Fatalf("%+v, %v", report, err)
			}
			checkClean(t, lb, state)

			k.fail = func(call string, r *netlink.Route) bool { return call == "RouteAdd" && r.Dst.IP.Equal(b.AsSlice()) }
			if report, err = r.Ensure([]netip.Addr{a, b}); err != nil || report.Routed != 1 || report.Refused[b] == nil {
				t.Fatalf("one of two: %+v, %v", report, err)
			}
			for _, call := range []string{"LinkList", "AddrList", "RouteList"} {
				k.fail = func(c string, _ *netlink.Route) bool { return c == call }
				if _, err = r.Ensure([]netip.Addr{c}); !errors.Is(err, errFault) {
					t.Fatalf("%s: %v", call, err)
				}
				if got := localRoutes(t, lb, true); len(got) != 1 || !got[a].IsValid() {
					t.Fatalf("%s failed, routes are %v", call, got)
				}
			}
			k.fail = func(call string, _ *netlink.Route) bool { return call == "RouteDel" }
			if _, err = r.Ensure([]netip.Addr{c}); !errors.Is(err, errFault) {
				t.Fatalf("removal failed: %v", err)
			}
			if got := localRoutes(t, lb, true); len(got) != 2 {
				t.Fatalf("removal failed, routes are %v", got)
			}
			k.fail = nil
			if got := ensure(t, r, c); got.Removed != 1 || got.Routed != 1 {
				t.Fatalf("healed: %+v", got)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			checkClean(t, lb, state)
		})
	}
}

// checkClean wants nothing of ours on the host: no route, no sysctl, no file.
func checkClean(t *testing.T, h *testnet.Host, state string) {
	t.Helper()
	if got := localRoutes(t, h, true); len(got) != 0 {
		t.Errorf("routes left: %v", got)
	}
	for _, key := range []string{"all/arp_ignore", "all/arp_announce"} {
		if v := arpSysctl(t, h, key); v != 0 {
			t.Errorf("sysctl %s is %d", key, v)
		}
	}
	if files, _ := os.ReadDir(state); len(files) != 0 {
		t.Errorf("files left: %v", files)
	}
}

// TestOpenFails: nothing stays open when OpenRoutes cannot work.
func TestOpenFails(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("alone")
	h.Do(func() {
		ns, err := currentNamespace()
		if err != nil {
			t.Error(err)
			return
		}
		released := false
		k := &faultyKernel{kernel: h.Netlink(), fail: func(string, *netlink.Route) bool { return true }}
		if _, err := newRoutes(ns, k, func() { released = true }, RoutesParams{}); !errors.Is(err, errFault) || !released {
			t.Errorf("released %v, %v", released, err)
		}
	})
}

// TestCleanup: what a dead process left is removed and told.
func TestCleanup(t *testing.T) {
	testnet.RequireRoot(t)
	lb := testnet.NewStar(t, 0).Balancer
	state := t.TempDir()
	addForeign(t, lb, "10.96.0.9/32")
	dead, _ := open(t, lb, state)
	if _, err := dead.Ensure(addrs("10.96.0.10", "fd96::10")); err != nil {
		t.Fatal(err)
	}
	if err := dead.Detach(); err != nil {
		t.Fatal(err)
	}
	want := [][]string{{
		"route local 10.96.0.10", "route local fd96::10",
		"sysctl net.ipv4.conf.all.arp_announce restored to 0", "sysctl net.ipv4.conf.all.arp_ignore restored to 0",
	}, nil}
	for _, want := range want {
		var did []string
		var err error
		lb.Do(func() { did, err = Cleanup(state) })
		if err != nil || !slices.Equal(did, want) {
			t.Fatalf("got %q, %v; want %q", did, err, want)
		}
	}
	checkClean(t, lb, state)
	if got := localRoutes(t, lb, false); len(got) != 1 {
		t.Errorf("routes of others are %v", got)
	}
}

// TestManyVIPs: ten thousand are quick to make, to keep, to adopt and to remove.
func TestManyVIPs(t *testing.T) {
	testnet.RequireRoot(t)
	lb := testnet.NewStar(t, 0).Balancer
	var vips []netip.Addr
	for i := range 5000 {
		vips = append(vips, netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), addr(fmt.Sprintf("fd96::%x", i+1)))
	}
	r, _ := open(t, lb, "")
	step := func(what string, f func() error) {
		t.Helper()
		start := time.Now()
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		took := time.Since(start)
		t.Logf("%s: %v", what, took.Round(time.Millisecond))
		if took > 5*time.Second { // about 0.3 s when the machine has nothing else to do
			t.Errorf("%s took %v", what, took)
		}
	}
	step("make", func() error { ensure(t, r, vips...); return nil })
	if got := localRoutes(t, lb, true); len(got) != len(vips) {
		t.Fatalf("%d routes, want %d", len(got), len(vips))
	}
	step("keep", func() error { ensure(t, r, vips...); return nil })
	step("one less", func() error { ensure(t, r, vips[1:]...); return nil })
	step("remove", r.Close)
	if got := localRoutes(t, lb, true); len(got) != 0 {
		t.Fatalf("%d routes left", len(got))
	}
}
