package capture

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// many gives n VIPs, of both families in turn.
func many(n int) (vips []netip.Addr) {
	for i := range n {
		vip := netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})
		if i%2 == 1 {
			vip = netip.MustParseAddr(fmt.Sprintf("fd97::%x", i))
		}
		vips = append(vips, vip)
	}
	return vips
}

// Many routes are made and removed as few are: with their hints, those of others left alone, and with the same report.
func TestManyRoutes(t *testing.T) {
	testnet.RequireRoot(t)
	lb := testnet.NewStar(t, 0).Balancer
	r, _ := open(t, lb, t.TempDir())
	vips := many(1001)
	few := vips[:3]
	if got := ensure(t, r, few...); got.Added != 3 {
		t.Fatalf("few: %+v", got)
	}
	hints := localRoutes(t, lb, true)
	got := ensure(t, r, vips...)
	if got.Added != 998 || got.Routed != 1001 || len(got.Refused) > 0 {
		t.Fatalf("many: %d added, %d routed, refused %v", got.Added, got.Routed, got.Refused)
	}
	routes := localRoutes(t, lb, true)
	for i, vip := range vips {
		if hint, ok := routes[vip]; !ok || hint != hints[vips[i%2]] {
			t.Fatalf("the route for %s has the hint %v, %t; want %v", vip, hint, ok, hints[vips[i%2]])
		}
	}
	if got := ensure(t, r, vips...); got.Added != 0 || got.Routed != 1001 {
		t.Fatalf("again: %+v", got)
	}
	if got := ensure(t, r, few...); got.Removed != 998 || got.Routed != 3 || len(localRoutes(t, lb, true)) != 3 {
		t.Fatalf("few again: %+v", got)
	}
	ensure(t, r, vips...)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if left := localRoutes(t, lb, true); len(left) > 0 {
		t.Errorf("%d routes are left", len(left))
	}
}

// What fails in between is told apart, and left to be tried alone.
func TestBulkTellsWhatFailed(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("bulk")
	r, _ := open(t, h, t.TempDir())
	defer func() { _ = r.Close() }()
	b := r.bulk
	vips := many(400)
	there := []int{0, 127, 128, 255, 399}
	for _, i := range there {
		ensure(t, r, append(vipsOf(t, h), vips[i])...)
	}
	changes := make([]change, len(vips))
	for i, vip := range vips {
		changes[i].vip = vip
	}
	for name, kind := range map[string]uint16{"add": unix.RTM_NEWROUTE, "add again": unix.RTM_NEWROUTE} {
		done, err := b.do(kind, changes)
		if err != nil || len(done) != len(vips) {
			t.Fatalf("%s: %d answers, %v", name, len(done), err)
		}
		for i, ok := range done {
			if ok == slices.Contains(there, i) {
				t.Errorf("%s: %s done: %t", name, vips[i], ok)
			}
		}
		there = nil
		for i := range vips { // now all are
			there = append(there, i)
		}
	}
	for _, gone := range []bool{false, true} {
		done, err := b.do(unix.RTM_DELROUTE, changes)
		if err != nil || len(done) != len(vips) || slices.Contains(done, gone) {
			t.Errorf("remove, all gone %t: %d answers, %v", gone, len(done), err)
		}
	}
}

// vipsOf lists what has a route of ours.
func vipsOf(t *testing.T, h *testnet.Host) (vips []netip.Addr) {
	t.Helper()
	for vip := range localRoutes(t, h, true) {
		vips = append(vips, vip)
	}
	return vips
}

// BenchmarkEnsure makes 30,000 routes and removes them again.
func BenchmarkEnsure(b *testing.B) {
	testnet.RequireRoot(b)
	h := testnet.New(b).Host("many")
	vips := many(30_000)
	for b.Loop() {
		var r *Routes
		var err error
		h.Do(func() { r, err = OpenRoutes(RoutesParams{}) })
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.Ensure(vips); err != nil {
			b.Fatal(err)
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
