package capture

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// alter calls Change and wants no refusal and no warning.
func alter(t testing.TB, r *Routes, add, remove []netip.Addr) Report {
	t.Helper()
	report, err := r.Change(add, remove)
	if err != nil || len(report.Refused) > 0 || len(report.Warnings) > 0 {
		t.Fatalf("add %v, remove %v: %+v, %v", add, remove, report, err)
	}
	return report
}

// TestChange: routes come and go one by one, and nothing is read for it.
func TestChange(t *testing.T) {
	testnet.RequireRoot(t)
	for _, tt := range vipTests {
		t.Run(tt.family, func(t *testing.T) {
			lb := testnet.NewStar(t, 1).Balancer
			state := t.TempDir()
			a, b, c := addr(tt.vip), addr(tt.other), addr(tt.third)
			r, k := open(t, lb, state)
			if got := alter(t, r, addrs(tt.vip, tt.vip), nil); !got.Whole || got.Added != 1 {
				t.Fatalf("first: %+v", got)
			}
			k.fail = func(call string, _ *netlink.Route) bool {
				return slices.Contains([]string{"LinkList", "AddrList", "RouteList"}, call)
			}
			for _, step := range []struct {
				add, remove    []netip.Addr
				added, removed int
				want           []netip.Addr
			}{
				{[]netip.Addr{b, b, a}, nil, 1, 0, []netip.Addr{a, b}},
				{[]netip.Addr{c}, []netip.Addr{a, a}, 1, 1, []netip.Addr{b, c}},
				{[]netip.Addr{b}, []netip.Addr{b, addr("192.0.2.1")}, 0, 0, []netip.Addr{b, c}},
				{[]netip.Addr{a}, []netip.Addr{b, c}, 1, 2, []netip.Addr{a}},
			} {
				got := alter(t, r, step.add, step.remove)
				if got.Whole || got.Added != step.added || got.Removed != step.removed {
					t.Errorf("add %v, remove %v: %+v", step.add, step.remove, got)
				}
				if routes := slices.SortedFunc(maps.Keys(localRoutes(t, lb, true)), netip.Addr.Compare); !slices.Equal(routes, step.want) {
					t.Errorf("add %v, remove %v: the routes are %v", step.add, step.remove, routes)
				}
			}
			if got := alter(t, r, nil, []netip.Addr{a}); got.Removed != 1 {
				t.Errorf("last: %+v", got)
			}
			checkClean(t, lb, state)
		})
	}
}

// TestChangeSees: what somebody else has done to the namespace is seen by the next Change, however soon it comes, and
// whatever was right before is right again.
func TestChangeSees(t *testing.T) {
	testnet.RequireRoot(t)
	for _, tt := range vipTests {
		a, b, c := addr(tt.vip), addr(tt.other), addr(tt.third)
		bits := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
		for name, step := range map[string]struct {
			before, do func(t *testing.T, h *testnet.Host)
			check      func(t *testing.T, h *testnet.Host, report Report)
		}{
			"a route of ours is gone": {nil, func(t *testing.T, h *testnet.Host) {
				delRoute(t, h, a)
			}, func(t *testing.T, h *testnet.Host, report Report) {
				if report.Added != 2 {
					t.Errorf("%+v", report)
				}
			}},
			"the address is configured": {nil, func(_ *testing.T, h *testnet.Host) {
				h.AddAddr("lo", bits(b))
			}, func(t *testing.T, _ *testnet.Host, report Report) {
				if !errors.Is(report.Refused[b], ErrHostAddress) {
					t.Errorf("%+v", report)
				}
			}},
			"the address is another's by a route": {nil, func(t *testing.T, h *testnet.Host) {
				addForeign(t, h, bits(b).String())
			}, func(t *testing.T, _ *testnet.Host, report Report) {
				if report.Local[b] == "" || report.Added != 0 {
					t.Errorf("%+v", report)
				}
			}},
			"the address of the hints is gone": {func(t *testing.T, h *testnet.Host) {
				h.AddAddr("lo", bits(c))
			}, func(t *testing.T, h *testnet.Host) {
				delAddr(t, h, "lo", bits(c).String())
			}, func(t *testing.T, h *testnet.Host, _ Report) {
				routes := localRoutes(t, h, true)
				if hint, there := routes[a]; !there || hint == c || routes[b] != hint {
					t.Errorf("the routes are %v", routes)
				}
			}},
			"more has changed than can be told": {nil, func(t *testing.T, h *testnet.Host) {
				for range 5 {
					many := make([]netip.Addr, 0, 2000)
					for i := range cap(many) {
						many = append(many, netip.AddrFrom4([4]byte{10, 99, byte(i >> 8), byte(i)}))
					}
					other, _ := open(t, h, "")
					if _, err := other.Ensure(append(many, a)); err != nil {
						t.Fatal(err)
					}
					if _, err := other.Ensure(nil); err != nil { // a goes with them
						t.Fatal(err)
					}
				}
			}, func(t *testing.T, _ *testnet.Host, report Report) {
				if report.Added != 2 {
					t.Errorf("%+v", report)
				}
			}},
		} {
			t.Run(fmt.Sprint(tt.family, " ", name), func(t *testing.T) {
				h := testnet.New(t).Host("lone")
				if step.before != nil {
					step.before(t, h)
				}
				r, _ := open(t, h, "")
				ensure(t, r, a)
				alter(t, r, nil, nil)
				step.do(t, h)
				report, err := r.Change([]netip.Addr{b}, nil)
				if err != nil || !report.Whole {
					t.Fatalf("%+v, %v", report, err)
				}
				step.check(t, h, report)
			})
		}
	}
}

func delRoute(t *testing.T, h *testnet.Host, vip netip.Addr) {
	t.Helper()
	lo, err := h.Netlink().LinkByName("lo")
	if err == nil {
		err = h.Netlink().RouteDel(&netlink.Route{
			LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_HOST,
			Dst: &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(vip.BitLen(), vip.BitLen())},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestChangeFaults: what the kernel refuses is reported of the one VIP, and can be had later.
func TestChangeFaults(t *testing.T) {
	testnet.RequireRoot(t)
	for _, tt := range vipTests {
		t.Run(tt.family, func(t *testing.T) {
			lb := testnet.NewStar(t, 0).Balancer
			a, b, c := addr(tt.vip), addr(tt.other), addr(tt.third)
			r, k := open(t, lb, "")
			ensure(t, r, a)
			k.fail = func(call string, r *netlink.Route) bool { return call == "RouteAdd" && r.Dst.IP.Equal(b.AsSlice()) }
			report, err := r.Change([]netip.Addr{b, c}, nil)
			if err != nil || report.Added != 1 || !errors.Is(report.Refused[b], errFault) {
				t.Fatalf("%+v, %v", report, err)
			}
			k.fail = func(call string, _ *netlink.Route) bool { return call == "RouteDel" }
			if _, err := r.Change(nil, []netip.Addr{c}); !errors.Is(err, errFault) {
				t.Fatalf("removal failed: %v", err)
			}
			k.fail = nil
			if got := ensure(t, r, a, b); got.Added != 1 || got.Removed != 1 || got.Routed != 2 {
				t.Fatalf("healed: %+v", got)
			}
		})
	}
}

// BenchmarkOneMore adds a VIP to as many as said, and takes it away again.
func BenchmarkOneMore(b *testing.B) {
	testnet.RequireRoot(b)
	for _, n := range []int{5_000, 10_000} {
		vips := many(n + 1)
		for name, one := range map[string]func(*Routes) (Report, error){
			"ensure": func(r *Routes) (Report, error) { return r.Ensure(vips) },
			"change": func(r *Routes) (Report, error) { return r.Change(vips[n:], nil) },
		} {
			b.Run(fmt.Sprint(n, " ", name), func(b *testing.B) {
				r, _ := open(b, testnet.New(b).Host("many"), "")
				if _, err := r.Ensure(vips[:n]); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					report, err := one(r)
					if err != nil || report.Added != 1 {
						b.Fatalf("%d added, %v", report.Added, err)
					}
					if _, err := r.Change(nil, vips[n:]); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
