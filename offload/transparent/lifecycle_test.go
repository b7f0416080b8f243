package transparent

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/offload/bpf"
)

// ours lists what of ours is in a host's kernel.
func ours(t *testing.T, h *testnet.Host) (rules []netlink.Rule, routes []netlink.Route) {
	t.Helper()
	for _, family := range families {
		all, err := h.Netlink().RuleList(family)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if r.Protocol == Protocol || r.Mark != 0 {
				rules = append(rules, r)
			}
		}
		found, err := h.Netlink().RouteListFiltered(family, &netlink.Route{Table: Table}, netlink.RT_FILTER_TABLE)
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, found...)
	}
	return rules, routes
}

func nothingLeft(t *testing.T, h *testnet.Host) {
	t.Helper()
	if rules, routes := ours(t, h); len(rules) > 0 || len(routes) > 0 {
		t.Errorf("left: %v %v", rules, routes)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	g := routed(t)
	g.open(t)
	if rules, routes := ours(t, g.between); len(rules) != 6 || len(routes) != 2 {
		t.Errorf("%d rules, %d routes", len(rules), len(routes))
	}
	for range 2 {
		if err := g.it.Close(); err != nil {
			t.Error(err)
		}
	}
	nothingLeft(t, g.between)
}

// What a crash leaves is taken over by the next process, or by a cleanup.
func TestAfterCrash(t *testing.T) {
	g := routed(t)
	g.open(t)
	if err := g.it.Detach(); err != nil {
		t.Fatal(err)
	}
	before, _ := ours(t, g.between)
	g.open(t)
	after, _ := ours(t, g.between)
	if len(before) != 6 || len(after) != 6 {
		t.Errorf("%d rules before, %d after", len(before), len(after))
	}
	g.backend.Serve(port, testnet.Echo)
	if err := testnet.Ask(g.connect(t, false, 40000), "there?"); err != nil {
		t.Error(err)
	}
	if err := g.it.Detach(); err != nil {
		t.Fatal(err)
	}
	// Rules of others are not touched, whatever their priority.
	mask := uint32(0xff)
	foreign := netlink.NewRule()
	foreign.Family, foreign.Priority, foreign.Mark, foreign.Mask, foreign.Table = netlink.FAMILY_V4, priorityIn, 0x42, &mask, 4242
	if err := g.between.Netlink().RuleAdd(foreign); err != nil {
		t.Fatal(err)
	}
	var did []string
	var err error
	g.between.Do(func() { did, err = Cleanup() })
	if err != nil || len(did) != 8 {
		t.Errorf("%v, %q", err, did)
	}
	if rules, _ := ours(t, g.between); len(rules) != 1 || rules[0].Table != 4242 {
		t.Errorf("left: %v", rules)
	}
	if err := g.between.Netlink().RuleDel(foreign); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g.between)
	g.between.Do(func() { did, err = Cleanup() })
	if err != nil || len(did) != 0 {
		t.Errorf("a second time: %v, %q", err, did)
	}
}

// Rules of an older version give way.
func TestOtherVersion(t *testing.T) {
	g := routed(t)
	mask := uint32(0x2000)
	old := netlink.NewRule()
	old.Family, old.Priority, old.Mark, old.Mask, old.Table, old.Protocol = netlink.FAMILY_V4, priorityIn, 0x2000, &mask, Table, Protocol
	if err := g.between.Netlink().RuleAdd(old); err != nil {
		t.Fatal(err)
	}
	g.open(t)
	rules, _ := ours(t, g.between)
	for _, r := range rules {
		if r.Mark == 0x2000 {
			t.Errorf("still there: %v", r)
		}
	}
	if len(rules) != 6 {
		t.Errorf("%d rules", len(rules))
	}
}

// Rules that others remove come back.
func TestRepair(t *testing.T) {
	g := routed(t)
	g.open(t)
	for _, family := range families {
		for _, r := range wantedRules(family) {
			if err := g.between.Netlink().RuleDel(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		rules, _ := ours(t, g.between)
		if len(rules) == 6 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("there are %d rules", len(rules))
		}
	}
}

// A backend that comes by a new device is heard.
func TestNewDevice(t *testing.T) {
	star := testnet.NewStar(t, 0)
	g := &ground{
		t: t, client: star.Client, between: star.Balancer,
		clientAt: map[bool]netip.Addr{false: star.Client.IP4, true: star.Client.IP6}, backendAt: map[bool]netip.Addr{},
	}
	g.open(t)
	g.backend = star.AddClient("late")
	for v6, a := range map[bool]netip.Addr{false: g.backend.IP4, true: g.backend.IP6} {
		g.backendAt[v6] = a
		if err := g.it.Add([]bpf.Peer{{Proto: 6, Address: netip.AddrPortFrom(a, port)}}); err != nil {
			t.Fatal(err)
		}
	}
	g.backend.Serve(port, testnet.Echo)
	for _, v6 := range []bool{false, true} {
		if err := testnet.Ask(g.connect(t, v6, 40000), "there?"); err != nil {
			t.Error(err)
		}
	}
}

// Answers of who has been removed are the network's.
func TestRemove(t *testing.T) {
	g := routed(t)
	g.open(t)
	g.backend.Serve(port, testnet.Echo)
	old := g.connect(t, false, 40000)
	v6 := []bpf.Peer{{Proto: 6, Address: netip.AddrPortFrom(g.backendAt[true], port)}}
	if err := g.it.Remove(v6); err != nil {
		t.Fatal(err)
	}
	if err := testnet.Ask(old, "still there?"); err != nil {
		t.Error(err)
	}
	if c, err := g.dial("tcp", true, 40001, port); err == nil {
		c.Close()
		t.Error("answers of who has been removed are delivered")
	}
	if err := errors.Join(g.it.Add(v6), g.it.Add(v6)); err != nil {
		t.Fatal(err)
	}
	if err := testnet.Ask(g.connect(t, true, 40002), "there again?"); err != nil {
		t.Error(err)
	}
}

// A lack of IPv6 leaves IPv4.
func TestOneFamily(t *testing.T) {
	k := &faulty{fail: func(family int) error {
		if family == netlink.FAMILY_V6 {
			return unix.EAFNOSUPPORT
		}
		return nil
	}}
	g := routed(t)
	g.open(t)
	g.swap(&k.kernel, k)
	if err := g.it.ensure(); err != nil {
		t.Error(err)
	}
	if why, _ := g.it.Ask(g.clientAt[false], g.backendAt[false]); why != "" {
		t.Errorf("IPv4: %s", why)
	}
	if why, _ := g.it.Ask(g.clientAt[true], g.backendAt[true]); why != "unavailable" {
		t.Errorf("IPv6: %q", why)
	}
	var none kernel
	g.swap(&none, &faulty{kernel: k.kernel, fail: func(int) error { return unix.EPERM }})
	if err := g.it.ensure(); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "list rules") {
		t.Errorf("neither family: %v", err)
	}
	g.swap(&none, k.kernel)
}

// swap puts another kernel in place of the one in use, which was is given. What follows
// changes of the host uses it too.
func (g *ground) swap(was *kernel, k kernel) {
	g.it.mu.Lock()
	defer g.it.mu.Unlock()
	*was, g.it.kernel = g.it.kernel, k
}

type faulty struct {
	kernel
	fail func(family int) error
}

func (f *faulty) RuleList(family int) ([]netlink.Rule, error) {
	if err := f.fail(family); err != nil {
		return nil, err
	}
	return f.kernel.RuleList(family)
}
