package bpf

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/baton-lb/baton/internal/testnet"
)

// Of the process that a test kills.
const (
	adoptDirEnv = "BATON_TEST_ADOPT_DIR"
	adoptHowEnv = "BATON_TEST_ADOPT_HOW"
)

// TestDevicesVictim is the process that others here kill. Run as anything else it has nothing to show.
func TestDevicesVictim(t *testing.T) {
	dir := os.Getenv(adoptDirEnv)
	if dir == "" {
		return
	}
	if _, _, err := pinnedMaps(dir, twoMaps()); err != nil {
		t.Fatal(err)
	}
	d, err := newDevices(newCounted(t).devicePrograms, linksDir(dir), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.clsact = os.Getenv(adoptHowEnv) == "clsact"
	if err := d.sync(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("ready")
	select {}
}

// leaveBehind has a process attach to the devices of a host and kills it.
func leaveBehind(t *testing.T, h *testnet.Host, dir string, clsact bool) {
	t.Helper()
	how := "tcx"
	if clsact {
		how = "clsact"
	}
	victim := h.TestProcess(context.Background(), "TestDevicesVictim", adoptDirEnv+"="+dir, adoptHowEnv+"="+how)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "ready"; {
		said.WriteString(lines.Text() + "\n")
	}
	_ = victim.Process.Kill()
	_ = victim.Wait()
	if said.Len() > 0 {
		t.Fatalf("the process to be killed says\n%s", said.String())
	}
}

// identity is what tells one attachment from another: the links at a device, or handles of filters.
func identity(t *testing.T, h *testnet.Host, name string) (links string, programs string) {
	t.Helper()
	l := mustLink(t, h, name)
	for _, at := range []hook{hookIngress, hookEgress} {
		for _, p := range tcxAt(t, h, l.Attrs().Index, at) {
			id, _ := p.LinkID()
			links += fmt.Sprint(at, " ", id, "; ")
			programs += fmt.Sprint(p.ID, "; ")
		}
		filters, err := h.Netlink().FilterList(l, at.parent())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range filters {
			b := f.(*netlink.BpfFilter)
			links += fmt.Sprint(b.Name, " ", b.Priority, " ", b.Handle, "; ")
			programs += fmt.Sprint(b.Id, "; ")
		}
	}
	return links, programs
}

// TestAdopt finds the attachments of a process that was killed, and gives them its own programs in place.
func TestAdopt(t *testing.T) {
	eachHow(t, func(t *testing.T, clsact bool) {
		star := testnet.NewStar(t, 1)
		h := star.Balancer
		_, dir := mountForTest(t, h)
		var links, programs string
		for range 2 {
			leaveBehind(t, h, dir, clsact)
			l, p := identity(t, h, "eth0")
			if l == "" || links != "" && l != links || p == programs {
				t.Fatalf("the killed process left links %q (before %q), programs %q (before %q)", l, links, p, programs)
			}
			links, programs = l, p
		}
		// While nobody is there a device goes, and another comes.
		if err := h.Netlink().LinkDel(mustLink(t, h, "eth1")); err != nil {
			t.Fatal(err)
		}
		if err := h.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: named("br0")}); err != nil {
			t.Fatal(err)
		}
		c := newCounted(t)
		d := openDevices(t, h, c, linksDir(dir), clsact)
		if err := d.sync(); err != nil {
			t.Fatal(err)
		}
		l, p := identity(t, h, "eth0")
		if l != links || p == programs {
			t.Errorf("adopted links %q, were %q; programs %q, were %q", l, links, p, programs)
		}
		if got := attached(t, h, "br0"); len(got) == 0 {
			t.Error("the new device has no programs")
		}
		talk(t, star.Client, netip.AddrPortFrom(h.IP4, h.Serve(0, testnet.Named("x")).Port))
		if c.ingress.n(t) == 0 || c.egress.n(t) == 0 {
			t.Error("the new programs see nothing")
		}
		names, err := pinnedNames(d.links)
		if err != nil {
			t.Fatal(err)
		}
		want := 4 // of two devices
		if clsact {
			want = 2 // the marks of our qdiscs
		}
		if len(names) != want {
			t.Errorf("pinned are %q", names)
		}
		if err := d.remove(); err != nil {
			t.Fatal(err)
		}
		if got := attached(t, h, "eth0"); len(got) != 0 {
			t.Errorf("removing left %q", got)
		}
	})
}

// TestAdoptNothingOfADeviceThatMoved: the device took link and number along, and another one has the number here.
func TestAdoptNothingOfADeviceThatMoved(t *testing.T) {
	testnet.RequireRoot(t)
	if noTCX() {
		t.Skip(featureTCX.Have()) // filters do not outlive a move
	}
	n := testnet.New(t)
	h, away := n.Host("a"), n.Host("away")
	_, dir := mountForTest(t, h)
	veth := func(index int) netlink.Link {
		a := named("pod0")
		a.Index = index
		if err := h.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: "pod1"}); err != nil {
			t.Fatal(err)
		}
		return mustLink(t, h, "pod0")
	}
	pod := veth(77)
	leaveBehind(t, h, dir, false)
	if err := h.Netlink().LinkSetNsFd(pod, int(away.NS())); err != nil {
		t.Fatal(err)
	}
	if index := indexOf(t, away, "pod0"); index != 77 {
		t.Fatalf("the device has number %d now", index)
	}
	if err := h.Netlink().LinkSetName(mustLink(t, h, "pod1"), "old1"); err != nil {
		t.Fatal(err)
	}
	veth(77)
	d := openDevices(t, h, newCounted(t), linksDir(dir), false)
	if err := d.sync(); err != nil {
		t.Fatal(err)
	}
	if got := attached(t, h, "pod0"); len(got) != 2 {
		t.Errorf("the new device has %q", got)
	}
	if got := attached(t, away, "pod0"); len(got) != 0 {
		t.Errorf("the device that moved has %q", got)
	}
}

// TestUpgrade has two processes' programs at once: the second takes over in place, and the first lets go.
func TestUpgrade(t *testing.T) {
	eachHow(t, func(t *testing.T, clsact bool) {
		star := testnet.NewStar(t, 0)
		h := star.Balancer
		_, dir := mountForTest(t, h)
		pinForTest(t, dir, twoMaps())
		before, after := newCounted(t), newCounted(t)
		first := openDevices(t, h, before, linksDir(dir), clsact)
		if err := first.sync(); err != nil {
			t.Fatal(err)
		}
		links, _ := identity(t, h, "eth0")
		second := openDevices(t, h, after, linksDir(dir), clsact)
		for _, d := range []*devices{second, first} { // the first looks once more
			if err := d.sync(); err != nil {
				t.Fatal(err)
			}
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if now, _ := identity(t, h, "eth0"); now != links {
			t.Errorf("attached is %q, was %q", now, links)
		}
		seen := before.ingress.n(t)
		talk(t, star.Client, netip.AddrPortFrom(h.IP4, h.Serve(0, testnet.Named("x")).Port))
		if before.ingress.n(t) != seen || after.ingress.n(t) == 0 {
			t.Errorf("the first saw %d more packets, the second %d", before.ingress.n(t)-seen, after.ingress.n(t))
		}
	})
}
