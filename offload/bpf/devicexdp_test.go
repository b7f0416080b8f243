package bpf

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/baton-lb/baton/internal/testnet"
)

// TestXDP runs on veth, whose driver has XDP, as on a physical device.
func TestXDP(t *testing.T) {
	testnet.RequireRoot(t)
	star := testnet.NewStar(t, 0)
	h, c := star.Balancer, newCounted(t)
	_, dir := mountForTest(t, h)
	pinForTest(t, dir, twoMaps())
	if err := h.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: named("br0")}); err != nil {
		t.Fatal(err)
	}
	d := openDevices(t, h, c, linksDir(dir), false)
	attach := func(name string) (a attachment, status string) {
		h.Do(func() { a, status = d.attachNative(mustLink(t, h, name)) })
		return a, status
	}
	a, status := attach("eth0")
	if a == nil || status != xdpNative {
		t.Fatal(status)
	}
	if ok, err := a.there(mustLink(t, h, "eth0")); !ok || err != nil {
		t.Errorf("it is there: %t, %v", ok, err)
	}
	talk(t, star.Client, netip.AddrPortFrom(h.IP4, h.Serve(0, testnet.Named("x")).Port))
	if c.xdp.n(t) == 0 {
		t.Error("the program saw nothing")
	}
	first := mustLink(t, h, "eth0").Attrs().Xdp.ProgId

	// Another process adopts it.
	if err := a.release(); err != nil {
		t.Fatal(err)
	}
	d.programs.XDP, c.xdp = newCounter(t, ebpf.XDP, 2)
	if a, status = attach("eth0"); a == nil || status != xdpNative {
		t.Fatal(status)
	}
	if now := mustLink(t, h, "eth0").Attrs().Xdp.ProgId; now == first {
		t.Error("the program is still the old one")
	}
	if err := a.detach(); err != nil {
		t.Error(err)
	}
	if x := mustLink(t, h, "eth0").Attrs().Xdp; x != nil && x.Attached {
		t.Errorf("still attached: %+v", x)
	}

	if _, status := attach("br0"); status != "the driver has no XDP" {
		t.Errorf("bridge: %s", status)
	}
	h.Do(func() {
		other, _ := newCounter(t, ebpf.XDP, 2)
		l, err := link.AttachXDP(link.XDPOptions{Interface: indexOf(t, h, "eth0"), Program: other})
		if err != nil {
			t.Error(err)
			return
		}
		defer l.Close()
		if _, status := attach("eth0"); !strings.HasPrefix(status, "an XDP program of somebody else is there (program ") {
			t.Errorf("beside another: %s", status)
		}
	})
}
