package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// counter counts the packets that a program sees, and lets them pass.
type counter struct{ m *ebpf.Map }

func (c counter) n(t *testing.T) (n uint64) {
	t.Helper()
	if err := c.m.Lookup(uint32(0), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func newCounter(t testing.TB, kind ebpf.ProgramType, verdict int32) (*ebpf.Program, counter) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, License: "Dual BSD/GPL", Instructions: asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, verdict).WithSymbol("out"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, counter{m}
}

// counted are programs that count.
type counted struct {
	devicePrograms
	ingress, egress, xdp counter
}

func newCounted(t testing.TB) (c counted) {
	t.Helper()
	c.Ingress, c.ingress = newCounter(t, ebpf.SchedCLS, -1)
	c.Egress, c.egress = newCounter(t, ebpf.SchedCLS, -1)
	c.XDP, c.xdp = newCounter(t, ebpf.XDP, 2)
	return c
}

// eachHow runs a test with tcx and with clsact.
func eachHow(t *testing.T, f func(t *testing.T, clsact bool)) {
	testnet.RequireRoot(t)
	t.Run("clsact", func(t *testing.T) { f(t, true) })
	t.Run("tcx", func(t *testing.T) {
		if noTCX() {
			t.Skip(featureTCX.Have())
		}
		f(t, false)
	})
}

// noTCX reports whether the kernel is too old for it.
func noTCX() bool { return errors.Is(featureTCX.Have(), ErrNotSupported) }

// tcxAt lists what sits at a hook of a device by tcx.
func tcxAt(t *testing.T, h *testnet.Host, index int, at hook) (programs []link.AttachedProgram) {
	t.Helper()
	if noTCX() {
		return nil
	}
	h.Do(func() {
		found, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: at.attachType()})
		if err != nil {
			t.Error(err)
			return
		}
		programs = found.Programs
	})
	return programs
}

func openDevices(t *testing.T, h *testnet.Host, c counted, links string, clsact bool) (d *devices) {
	t.Helper()
	var err error
	h.Do(func() { d, err = newDevices(c.devicePrograms, links, true, nil) })
	if err != nil {
		t.Fatal(err)
	}
	d.clsact = clsact || noTCX()
	t.Cleanup(func() {
		if err := d.remove(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func indexOf(t *testing.T, h *testnet.Host, name string) int {
	t.Helper()
	l, err := h.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Index
}

// attached is what sits on a device: programs by tcx, filters by name, and the qdisc.
func attached(t *testing.T, h *testnet.Host, name string) (found []string) {
	t.Helper()
	l, err := h.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []hook{hookIngress, hookEgress} {
		for range tcxAt(t, h, l.Attrs().Index, at) {
			found = append(found, "tcx "+at.String())
		}
		filters, err := h.Netlink().FilterList(l, at.parent())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range filters {
			found = append(found, fmt.Sprintf("filter %d %s", f.Attrs().Priority, f.(*netlink.BpfFilter).Name))
		}
	}
	qdiscs, err := h.Netlink().QdiscList(l)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range qdiscs {
		if q.Type() == "clsact" || q.Type() == "ingress" {
			found = append(found, q.Type())
		}
	}
	return found
}

// talk makes a host answer another, so that packets go both ways.
func talk(t *testing.T, from *testnet.Host, to netip.AddrPort) {
	t.Helper()
	conn, err := from.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestAttach(t *testing.T) {
	eachHow(t, func(t *testing.T, clsact bool) {
		star := testnet.NewStar(t, 0)
		h, c := star.Balancer, newCounted(t)
		d := openDevices(t, h, c, "", clsact)
		eth0 := indexOf(t, h, "eth0")
		for range 2 { // attaching again changes nothing
			if err := d.attach(eth0); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"tcx ingress", "tcx egress"}
		if clsact {
			want = []string{"filter 1 baton-ingress", "filter 1 baton-egress", "clsact"}
		}
		if got := attached(t, h, "eth0"); !slices.Equal(got, want) {
			t.Errorf("attached %q, want %q", got, want)
		}
		talk(t, star.Client, netip.AddrPortFrom(h.IP4, h.Serve(0, testnet.Named("x")).Port))
		if c.ingress.n(t) == 0 || c.egress.n(t) == 0 || c.xdp.n(t) != 0 {
			t.Errorf("programs saw %d in, %d out, %d by XDP", c.ingress.n(t), c.egress.n(t), c.xdp.n(t))
		}
		if got := d.status(); len(got) != 1 || got[0].How != d.how() || got[0].XDP != "veth is no physical device" || got[0].Why != "" {
			t.Errorf("status %+v", got)
		}
		for range 2 {
			if err := d.detach(eth0); err != nil {
				t.Fatal(err)
			}
		}
		if got := attached(t, h, "eth0"); len(got) != 0 {
			t.Errorf("after detaching there is %q", got)
		}
	})
}

// TestAttachRefuses names what gets no programs.
func TestAttachRefuses(t *testing.T) {
	testnet.RequireRoot(t)
	star := testnet.NewStar(t, 0)
	h := star.Balancer
	d := openDevices(t, h, newCounted(t), "", false)
	if err := h.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: named("br0")}); err != nil {
		t.Fatal(err)
	}
	h.Do(func() { // an L3 device; the request goes through /dev/net/tun
		if err := netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: named("tun7"), Mode: netlink.TUNTAP_MODE_TUN}); err != nil {
			t.Fatal(err)
		}
	})
	br0, _ := h.Netlink().LinkByName("br0")
	eth0, _ := h.Netlink().LinkByName("eth0")
	if err := h.Netlink().LinkSetMaster(eth0, br0); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"lo": "flows on loopback stay in userspace", "tun7": "packets have no Ethernet header (none)", "eth0": "belongs to br0, which has them",
	} {
		if err := d.attach(indexOf(t, h, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if err := d.attach(1 << 20); err == nil {
		t.Error("a device that does not exist was attached to")
	}
	if err := d.attach(indexOf(t, h, "br0")); err != nil {
		t.Error(err)
	}
}

func named(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

// TestOthersStay attaches beside programs of somebody else.
func TestOthersStay(t *testing.T) {
	eachHow(t, func(t *testing.T, clsact bool) {
		star := testnet.NewStar(t, 0)
		h, c := star.Balancer, newCounted(t)
		other, others := newCounter(t, ebpf.SchedCLS, 0) // ends what comes behind it
		eth0 := indexOf(t, h, "eth0")
		if clsact {
			if err := h.Netlink().QdiscAdd(clsactOf(eth0)); err != nil {
				t.Fatal(err)
			}
			err := h.Netlink().FilterAdd(&netlink.BpfFilter{
				FilterAttrs: netlink.FilterAttrs{LinkIndex: eth0, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 2, Protocol: unix.ETH_P_ALL, Handle: 1},
				Fd:          other.FD(), Name: "other", DirectAction: true,
			})
			if err != nil {
				t.Fatal(err)
			}
		} else {
			h.Do(func() {
				l, err := link.AttachTCX(link.TCXOptions{Interface: eth0, Program: other, Attach: ebpf.AttachTCXIngress})
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { l.Close() })
			})
		}
		before := attached(t, h, "eth0")
		d := openDevices(t, h, c, "", clsact)
		if err := d.attach(eth0); err != nil {
			t.Fatal(err)
		}
		talk(t, star.Client, netip.AddrPortFrom(h.IP4, h.Serve(0, testnet.Named("x")).Port))
		if c.ingress.n(t) == 0 || others.n(t) == 0 {
			t.Errorf("ours saw %d, the other %d", c.ingress.n(t), others.n(t))
		}
		if err := d.remove(); err != nil {
			t.Fatal(err)
		}
		if got := attached(t, h, "eth0"); !slices.Equal(got, before) {
			t.Errorf("left %q, was %q", got, before)
		}
	})
}

// TestIngressQdiscOfOthers has no egress, and is not ours to replace.
func TestIngressQdiscOfOthers(t *testing.T) {
	testnet.RequireRoot(t)
	star := testnet.NewStar(t, 0)
	h := star.Balancer
	eth0 := indexOf(t, h, "eth0")
	err := h.Netlink().QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: eth0, Parent: netlink.HANDLE_INGRESS}})
	if err != nil {
		t.Fatal(err)
	}
	d := openDevices(t, h, newCounted(t), "", true)
	if err := d.attach(eth0); err == nil || !strings.Contains(err.Error(), "ingress qdisc of somebody else") {
		t.Error(err)
	}
	if got := d.status(); len(got) != 1 || got[0].How != "" || got[0].Why == "" {
		t.Errorf("status %+v", got)
	}
	if got := attached(t, h, "eth0"); !slices.Equal(got, []string{"ingress"}) {
		t.Errorf("left %q", got)
	}
}

// TestTakenAway puts back what somebody else removed.
func TestTakenAway(t *testing.T) {
	eachHow(t, func(t *testing.T, clsact bool) {
		star := testnet.NewStar(t, 0)
		h := star.Balancer
		d := openDevices(t, h, newCounted(t), "", clsact)
		if err := d.sync(); err != nil {
			t.Fatal(err)
		}
		want := attached(t, h, "eth0")
		if clsact {
			if err := h.Netlink().QdiscDel(clsactOf(indexOf(t, h, "eth0"))); err != nil {
				t.Fatal(err)
			}
		} else {
			for _, a := range d.on[indexOf(t, h, "eth0")].at[:hookXDP] {
				if err := a.(*linkAttachment).link.Detach(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := attached(t, h, "eth0"); len(got) != 0 {
			t.Fatalf("still %q", got)
		}
		if err := d.sync(); err != nil {
			t.Fatal(err)
		}
		if got := attached(t, h, "eth0"); !slices.Equal(got, want) {
			t.Errorf("put back %q, want %q", got, want)
		}
	})
}

// TestFollow lets devices come, go, be renamed, and move to another namespace.
func TestFollow(t *testing.T) {
	eachHow(t, func(t *testing.T, clsact bool) {
		star := testnet.NewStar(t, 0)
		h, away := star.Balancer, star.Net.Host("away")
		d := openDevices(t, h, newCounted(t), "", clsact)
		inBackground(t, func() error { return d.follow(t.Context()) })
		awaitStatus(t, d, "eth0: "+d.how()+", XDP: veth is no physical device", "lo: flows on loopback stay in userspace")

		if err := h.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: named("pod0"), PeerName: "pod1"}); err != nil {
			t.Fatal(err)
		}
		pod0 := mustLink(t, h, "pod0")
		awaitStatus(t, d, "pod0: "+d.how()+", XDP: veth is no physical device", "pod1: "+d.how()+", XDP: veth is no physical device")
		if err := h.Netlink().LinkSetName(pod0, "pod9"); err != nil {
			t.Fatal(err)
		}
		awaitStatus(t, d, "pod9: "+d.how()+", XDP: veth is no physical device")
		if err := h.Netlink().LinkSetNsFd(pod0, int(away.NS())); err != nil {
			t.Fatal(err)
		}
		testnet.Eventually(t, 5*time.Second, "nothing is left on the device that moved", func() error {
			if got := attached(t, away, "pod9"); len(got) > 0 {
				return fmt.Errorf("there is %q", got)
			}
			return nil
		})
		for _, name := range []string{"eth0", "pod1"} {
			if err := h.Netlink().LinkDel(mustLink(t, h, name)); err != nil {
				t.Fatal(err)
			}
		}
		testnet.Eventually(t, 5*time.Second, "nothing is on a device that is gone", func() error {
			if got := d.status(); len(got) != 1 {
				return fmt.Errorf("status %+v", got)
			}
			return nil
		})
	})
}

func mustLink(t *testing.T, h *testnet.Host, name string) netlink.Link {
	t.Helper()
	l, err := h.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// inBackground runs f, which ends with the test's context.
func inBackground(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	t.Cleanup(func() { // the test's context is done by now
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// awaitStatus waits until each of these is said.
func awaitStatus(t *testing.T, d *devices, want ...string) {
	t.Helper()
	testnet.Eventually(t, 5*time.Second, "status", func() error {
		var got []string
		for _, dev := range d.status() {
			got = append(got, dev.String())
		}
		for _, w := range want {
			if !slices.Contains(got, w) {
				return fmt.Errorf("%q, want %q", got, w)
			}
		}
		return nil
	})
}

// TestResyncAfterLoss loses events: the receive buffer of the socket is too small for them.
func TestResyncAfterLoss(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("a")
	d := openDevices(t, h, newCounted(t), "", false)
	small := func() *deviceEvents {
		s, err := d.subscribe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		if err := s.socket.SetReceiveBufferSize(1, false); err != nil {
			t.Fatal(err)
		}
		return s
	}
	events, witness := small(), small()
	for i := range 20 {
		if err := h.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: named(fmt.Sprintf("br%d", i))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := witness.socket.Receive(); !errors.Is(err, unix.ENOBUFS) {
		t.Fatalf("nothing was lost: %v", err)
	}
	wake, done := make(chan struct{}, 1), make(chan error, 1)
	go func() { done <- events.listen(wake) }()
	select {
	case <-wake:
	case err := <-done:
		t.Fatalf("stopped listening: %v", err)
	}
	events.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// BenchmarkSync is what one look at 200 devices costs that have their programs already.
func BenchmarkSync(b *testing.B) {
	testnet.RequireRoot(b)
	h := testnet.New(b).Host("a")
	for i := range 100 {
		if err := h.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: named(fmt.Sprintf("a%d", i)), PeerName: fmt.Sprintf("b%d", i)}); err != nil {
			b.Fatal(err)
		}
	}
	var d *devices
	var err error
	h.Do(func() { d, err = newDevices(newCounted(b).devicePrograms, "", false, nil) })
	if err != nil {
		b.Fatal(err)
	}
	defer d.remove()
	h.Do(func() { err = d.sync() })
	if err != nil {
		b.Fatal(err)
	}
	h.Do(func() { // no thread is made for it, as in a process that lives in one namespace
		for b.Loop() {
			if err := d.sync(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
