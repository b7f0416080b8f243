package capture

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

func TestPlanIgnore(t *testing.T) {
	type values map[string]int
	tests := []struct {
		name        string
		now, change values
	}{
		{"fresh", values{"all": 0, "default": 0, "eth0": 0}, values{"all": 3}},
		{"already ours", values{"all": 3, "default": 0, "eth0": 0}, values{}},
		{"strict ARP of kube-proxy", values{"all": 1, "default": 0, "eth0": 0}, values{}},
		{"nothing answered", values{"all": 8, "default": 0, "eth0": 0}, values{}},
		{"one device is strict", values{"all": 0, "default": 0, "eth0": 1, "eth1": 0, "lo": 0},
			values{"default": 3, "eth1": 3, "lo": 3}},
		{"new devices are strict", values{"all": 0, "default": 2, "eth0": 0}, values{"eth0": 3}},
		{"one device answers nothing", values{"all": 0, "default": 0, "eth0": 8}, values{"all": 3}},
		{"reserved value", values{"all": 4, "default": 0, "eth0": 0}, values{"all": 3}},
		{"strict and reserved", values{"all": 0, "default": 1, "eth0": 1, "eth1": 5}, values{"eth1": 3}},
	}
	for _, tt := range tests {
		got := values{}
		for _, s := range planIgnore(tt.now) {
			dev := filepath.Dir(s.Key)
			if got[dev] = s.Set; s.Was != tt.now[dev] {
				t.Errorf("%s: %+v was %d", tt.name, s, tt.now[dev])
			}
		}
		if !maps.Equal(got, tt.change) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.change)
		}
	}
}

// fakeSysctls is a host's, in memory.
type fakeSysctls struct {
	values map[string]int
	fail   string // the key that cannot be written
}

func (f *fakeSysctls) devices() (names []string, _ error) {
	for key := range f.values {
		if dev := filepath.Dir(key); !slices.Contains(names, dev) {
			names = append(names, dev)
		}
	}
	return names, nil
}

func (f *fakeSysctls) read(key string) (int, error) {
	v, ok := f.values[key]
	if !ok {
		return 0, os.ErrNotExist
	}
	return v, nil
}

func (f *fakeSysctls) write(key string, value int) error {
	if _, ok := f.values[key]; !ok {
		return os.ErrNotExist
	}
	if key == f.fail {
		return unix.EROFS
	}
	f.values[key] = value
	return nil
}

func TestARPGuard(t *testing.T) {
	fresh := map[string]int{"all/arp_ignore": 0, "all/arp_announce": 1, "default/arp_ignore": 0, "default/arp_announce": 0,
		"eth0/arp_ignore": 1, "eth0/arp_announce": 0, "eth1/arp_ignore": 0, "eth1/arp_announce": 0}
	sys := &fakeSysctls{values: maps.Clone(fresh)}
	g := &arpGuard{sys: sys, file: stateFile{path: filepath.Join(t.TempDir(), "state", "arp.json")}}
	exists := func() bool { _, err := os.Stat(g.file.path); return err == nil }

	sys.fail = "all/arp_announce" // the last one
	if err := g.raise(); !errors.Is(err, unix.EROFS) || !maps.Equal(sys.values, fresh) || exists() {
		t.Fatalf("failed: %v, %v, file %v", err, sys.values, exists())
	}
	sys.fail = ""
	for range 2 {
		if err := g.raise(); err != nil {
			t.Fatal(err)
		}
		if sys.values["eth0/arp_ignore"] != 1 || sys.values["eth1/arp_ignore"] != 3 || sys.values["all/arp_announce"] != 2 {
			t.Fatalf("%v", sys.values)
		}
	}
	// A device goes, one comes with the values of default, somebody changes a value, and the process dies.
	delete(sys.values, "eth1/arp_ignore")
	sys.values["eth2/arp_ignore"] = sys.values["default/arp_ignore"]
	sys.values["all/arp_announce"] = 0
	g = &arpGuard{sys: sys, file: stateFile{path: g.file.path}}
	if err := g.raise(); err != nil || sys.values["all/arp_announce"] != 2 {
		t.Fatalf("%v, %v", err, sys.values)
	}
	sys.values["default/arp_ignore"] = 2
	sys.fail = "all/arp_announce"
	if _, err := g.restore(); !errors.Is(err, unix.EROFS) || !exists() {
		t.Fatalf("failed: %v, file %v", err, exists())
	}
	sys.fail = ""
	did, err := g.restore()
	if err != nil || exists() || sys.values["all/arp_announce"] != 0 || sys.values["default/arp_ignore"] != 2 {
		t.Fatalf("%q, %v, %v", did, err, sys.values)
	}
	if did, err := g.restore(); did != nil || err != nil {
		t.Fatalf("again: %q, %v", did, err)
	}
}

// TestARPWithoutState: a state file that cannot be written or read leaves the sysctls alone.
func TestARPWithoutState(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("no JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "below")} {
		sys := &fakeSysctls{values: map[string]int{"all/arp_ignore": 0}}
		g := &arpGuard{sys: sys, file: stateFile{path: path}}
		if err := g.raise(); err == nil || sys.values["all/arp_ignore"] != 0 {
			t.Errorf("%s: %v, %v", path, err, sys.values)
		}
	}
}

func arpSysctl(t testing.TB, h *testnet.Host, key string) (value int) {
	t.Helper()
	h.Do(func() {
		b, err := os.ReadFile(filepath.Join(confDir, key))
		if err == nil {
			_, err = fmt.Sscan(string(b), &value)
		}
		if err != nil {
			t.Errorf("read sysctl: %v", err)
		}
	})
	return value
}

// resolves says whether somebody on dev answers for an address: it makes the host look for it there and waits for what
// the neighbour table says.
func resolves(t *testing.T, h *testnet.Host, dev string, a netip.Addr) bool {
	t.Helper()
	link, err := h.Netlink().LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	index := link.Attrs().Index
	onLink := &netlink.Route{LinkIndex: index, Scope: unix.RT_SCOPE_LINK, Priority: 1,
		Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
	if err := h.Netlink().RouteReplace(onLink); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Netlink().RouteDel(onLink) }()
	_ = h.Netlink().NeighDel(&netlink.Neigh{LinkIndex: index, IP: a.AsSlice()})
	conn, err := h.Dial("udp", netip.AddrPortFrom(a, 9))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("who has"))
	answered := false
	testnet.Eventually(t, 10*time.Second, "the neighbour "+a.String()+" is found or not", func() error {
		switch state := neighbour(t, h, index, a); {
		case state&(unix.NUD_REACHABLE|unix.NUD_STALE|unix.NUD_DELAY|unix.NUD_PROBE) != 0:
			answered = true
			return nil
		case state&unix.NUD_FAILED != 0:
			return nil
		default:
			return fmt.Errorf("state %#x", state)
		}
	})
	return answered
}

// neighbour gives the state of an entry of the neighbour table; 0 if there is none.
func neighbour(t *testing.T, h *testnet.Host, index int, a netip.Addr) (state int) {
	t.Helper()
	neighs, err := h.Netlink().NeighList(index, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range neighs {
		if n.IP.Equal(a.AsSlice()) {
			state |= n.State
		}
	}
	return state
}

// TestNoAnswerForVIPs: on the client's link nobody answers for a VIP, while every address of the host is answered for,
// that of another device too, also on a device that came later; and all is as before afterwards. That the kernel would
// answer without the guard is shown as well, for IPv4: for IPv6 it never does.
func TestNoAnswerForVIPs(t *testing.T) {
	testnet.RequireRoot(t)
	s := testnet.NewStar(t, 1)
	lb, client := s.Balancer, s.Client
	client.Sysctl("net/ipv4/neigh/eth0/retrans_time_ms", "50")
	client.Sysctl("net/ipv6/neigh/eth0/retrans_time_ms", "50")
	other := s.BackendLinks[0].A
	vip4, vip6 := addr("10.96.0.10"), addr("fd96::10")
	check := func(when string, h *testnet.Host, a netip.Addr, want bool) {
		t.Helper()
		if got := resolves(t, h, "eth0", a); got != want {
			t.Errorf("%s: %s answered: %v, want %v", when, a, got, want)
		}
	}

	r, _ := open(t, lb, t.TempDir())
	ensure(t, r, vip4, vip6)
	check("guarded", client, vip4, false)
	check("guarded", client, vip6, false)
	check("guarded", client, lb.IP4, true)
	check("guarded", client, lb.IP6, true)
	check("guarded", client, other.IP4, true)

	late := s.AddClient("late")
	late.Sysctl("net/ipv4/neigh/eth0/retrans_time_ms", "50")
	check("on a new device", late, vip4, false)
	check("on a new device", late, lb.IP4, true)

	lb.Sysctl("net.ipv4.conf.all.arp_ignore", "0")
	check("unguarded", client, vip4, true)
	ensure(t, r, vip4, vip6)
	check("guarded again", client, vip4, false)

	ensure(t, r, vip6)
	if got := arpSysctl(t, lb, "all/arp_ignore"); got != 0 {
		t.Errorf("without IPv4 VIPs arp_ignore is %d", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	check("closed", client, vip4, false) // the VIP is local no longer
	check("closed", client, other.IP4, true)
}

// TestNoAnnouncementOfVIPs: a packet from the VIP to a neighbour that is not known yet does not tell that neighbour that
// the VIP is ours.
func TestNoAnnouncementOfVIPs(t *testing.T) {
	testnet.RequireRoot(t)
	s := testnet.NewStar(t, 0)
	lb, client := s.Balancer, s.Client
	vip := addr("10.96.0.10")
	r, _ := open(t, lb, "")
	ensure(t, r, vip)
	sendFromVIP := func() (learned bool) {
		t.Helper()
		clientDev, _ := client.Netlink().LinkByName("eth0")
		lbDev, _ := lb.Netlink().LinkByName("eth0")
		for _, a := range []netip.Addr{vip, lb.IP4} {
			_ = client.Netlink().NeighDel(&netlink.Neigh{LinkIndex: clientDev.Attrs().Index, IP: a.AsSlice()})
		}
		_ = lb.Netlink().NeighDel(&netlink.Neigh{LinkIndex: lbDev.Attrs().Index, IP: client.IP4.AsSlice()})
		pc, err := lb.ListenPacket("udp4", netip.AddrPortFrom(vip, 5353))
		if err != nil {
			t.Fatal(err)
		}
		defer pc.Close()
		if _, err := pc.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(client.IP4, 9))); err != nil {
			t.Fatal(err)
		}
		testnet.Eventually(t, 5*time.Second, "the balancer finds the client", func() error {
			if state := neighbour(t, lb, lbDev.Attrs().Index, client.IP4); state&unix.NUD_REACHABLE == 0 {
				return fmt.Errorf("state %#x", state)
			}
			return nil
		})
		return neighbour(t, client, clientDev.Attrs().Index, vip) != 0
	}
	if sendFromVIP() {
		t.Error("the client learned the VIP from our ARP request")
	}
	lb.Sysctl("net.ipv4.conf.all.arp_announce", "0")
	if !sendFromVIP() {
		t.Error("without arp_announce the client does not learn the VIP either: the test shows nothing")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestARPCannotBeStopped: the VIPs are served all the same, with a warning.
func TestARPCannotBeStopped(t *testing.T) {
	testnet.RequireRoot(t)
	lb := testnet.NewStar(t, 0).Balancer
	r, _ := open(t, lb, "")
	r.arp.sys = &fakeSysctls{values: map[string]int{"all/arp_ignore": 0}, fail: "all/arp_ignore"}
	report, err := r.Ensure(addrs("10.96.0.10"))
	if err != nil || report.Routed != 1 || len(report.Warnings) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	report, err = r.Ensure(addrs("fd96::10"))
	if err != nil || len(report.Warnings) != 0 {
		t.Fatalf("IPv6 only: %+v, %v", report, err)
	}
}
