package bpf

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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

// toldPorts remembers what it was told.
type toldPorts map[int]string

func (p toldPorts) AllowXDP(ifindex int, mac net.HardwareAddr) error {
	p[ifindex] = mac.String()
	return nil
}
func (p toldPorts) ForbidXDP(ifindex int) error { p[ifindex] = ""; return nil }

// TestXDPPorts: where XDP is, its address is known, as it changes; elsewhere it is forbidden.
func TestXDPPorts(t *testing.T) {
	testnet.RequireRoot(t)
	star := testnet.NewStar(t, 1)
	h, told := star.Balancer, toldPorts{}
	d := openDevices(t, h, newCounted(t), "", false)
	d.ports = told
	eth0, eth1 := mustLink(t, h, "eth0"), indexOf(t, h, "eth1")
	told[eth1] = "of another device that had this number"
	sync := func() {
		t.Helper()
		if err := d.sync(); err != nil {
			t.Fatal(err)
		}
	}
	sync()
	if told[eth0.Attrs().Index] != "" || told[eth1] != "" {
		t.Errorf("without XDP: %v", told)
	}
	h.Do(func() { // veth is no physical device, and can it all the same
		d.on[eth0.Attrs().Index].at[hookXDP], _ = d.attachNative(eth0)
	})
	sync()
	if told[eth0.Attrs().Index] != eth0.Attrs().HardwareAddr.String() || told[eth1] != "" {
		t.Errorf("with XDP: %v", told)
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	if err := h.Netlink().LinkSetHardwareAddr(eth0, mac); err != nil {
		t.Fatal(err)
	}
	sync()
	if told[eth0.Attrs().Index] != mac.String() {
		t.Errorf("after the address changed: %v", told)
	}
	if err := d.detach(eth0.Attrs().Index); err != nil {
		t.Fatal(err)
	}
	if told[eth0.Attrs().Index] != "" {
		t.Errorf("detached: %v", told)
	}
}

func TestXDPLacks(t *testing.T) {
	testnet.RequireRoot(t)
	star := testnet.NewStar(t, 0)
	h := star.Balancer
	if err := h.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: named("br0")}); err != nil {
		t.Fatal(err)
	}
	h.Do(func() {
		for name, want := range map[string]string{"lo": "cannot send", "br0": "cannot send"} {
			if got := xdpLacks(indexOf(t, h, name)); !strings.Contains(got, want) && !strings.Contains(got, "from Linux 6.3 on") {
				t.Errorf("%s: %q", name, got)
			}
		}
		features, err := xdpFeatures(indexOf(t, h, "eth0")) // transmits when its peer has XDP or GRO
		if (err != nil || features&netdevXDPRedirect == 0) && !errors.Is(err, unix.ENOENT) {
			t.Errorf("veth: %x, %v", features, err)
		}
		if _, err := xdpFeatures(1 << 20); err == nil {
			t.Error("a device that does not exist has XDP")
		}
	})
}
