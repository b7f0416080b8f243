package capture

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrs(texts ...string) (all []netip.Addr) {
	for _, s := range texts {
		all = append(all, addr(s))
	}
	return all
}

// errFault is what a kernel call fails with that a test lets fail.
var errFault = errors.New("fault put in by the test")

// faultyKernel fails those calls for which fail says so; everything else reaches the kernel.
type faultyKernel struct {
	kernel
	fail func(call string, r *netlink.Route) bool
}

func (k *faultyKernel) check(call string, r *netlink.Route) error {
	if k.fail != nil && k.fail(call, r) {
		return errFault
	}
	return nil
}

func (k *faultyKernel) LinkList() ([]netlink.Link, error) {
	if err := k.check("LinkList", nil); err != nil {
		return nil, err
	}
	return k.kernel.LinkList()
}

func (k *faultyKernel) AddrList(l netlink.Link, family int) ([]netlink.Addr, error) {
	if err := k.check("AddrList", nil); err != nil {
		return nil, err
	}
	return k.kernel.AddrList(l, family)
}

func (k *faultyKernel) RouteListFilteredIter(family int, r *netlink.Route, mask uint64, f func(netlink.Route) bool) error {
	if err := k.check("RouteList", nil); err != nil {
		return err
	}
	return k.kernel.RouteListFilteredIter(family, r, mask, f)
}

func (k *faultyKernel) RouteAdd(r *netlink.Route) error {
	return errors.Join(k.check("RouteAdd", r), k.unlessFault("RouteAdd", r, k.kernel.RouteAdd))
}

func (k *faultyKernel) RouteReplace(r *netlink.Route) error {
	return errors.Join(k.check("RouteReplace", r), k.unlessFault("RouteReplace", r, k.kernel.RouteReplace))
}

func (k *faultyKernel) RouteDel(r *netlink.Route) error {
	return errors.Join(k.check("RouteDel", r), k.unlessFault("RouteDel", r, k.kernel.RouteDel))
}

func (k *faultyKernel) unlessFault(call string, r *netlink.Route, f func(*netlink.Route) error) error {
	if k.check(call, r) != nil {
		return nil
	}
	return f(r)
}

// open makes Routes on a host, with a kernel that can be made to fail. The test closes it.
func open(t testing.TB, h *testnet.Host, stateDir string) (*Routes, *faultyKernel) {
	t.Helper()
	var r *Routes
	var err error
	h.Do(func() { r, err = OpenRoutes(RoutesParams{StateDir: stateDir}) })
	if err != nil {
		t.Fatal(err)
	}
	k := &faultyKernel{kernel: r.kernel}
	r.kernel = k
	t.Cleanup(func() { _ = r.Detach() })
	return r, k
}

// ensure calls Ensure and wants no refusal and no warning.
func ensure(t testing.TB, r *Routes, vips ...netip.Addr) Report {
	t.Helper()
	report, err := r.Ensure(vips)
	if err != nil || len(report.Refused) > 0 || len(report.Warnings) > 0 {
		t.Fatalf("ensure %v: %+v, %v", vips, report, err)
	}
	return report
}

// localRoutes gives the routes to single addresses in the table local that are of ours, or of nobody's address and not of
// ours, and their source hints.
func localRoutes(t testing.TB, h *testnet.Host, ours bool) map[netip.Addr]netip.Addr {
	t.Helper()
	host, err := readHost(h.Netlink())
	if err != nil {
		t.Fatal(err)
	}
	if ours {
		return host.ours
	}
	foreign := make(map[netip.Addr]netip.Addr)
	for a := range host.local {
		foreign[a] = netip.Addr{}
	}
	return foreign
}

// addForeign makes a local route that is not ours.
func addForeign(t testing.TB, h *testnet.Host, prefix string) {
	t.Helper()
	p := netip.MustParsePrefix(prefix)
	lo, err := h.Netlink().LinkByName("lo")
	if err == nil {
		err = h.Netlink().RouteAdd(&netlink.Route{
			LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_HOST,
			Protocol: unix.RTPROT_STATIC,
			Dst:      &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func delAddr(t testing.TB, h *testnet.Host, dev, prefix string) {
	t.Helper()
	link, err := h.Netlink().LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	a, err := netlink.ParseAddr(prefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Netlink().AddrDel(link, a); err != nil {
		t.Fatal(err)
	}
}
