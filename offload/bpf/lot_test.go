package bpf

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// holder is a program that sends every packet to the lot while it is told to.
type holder struct {
	*ebpf.Program
	m *ebpf.Map // [0] = the lot's device, 0 = let pass
}

func newHolder(t *testing.T) (h holder) {
	t.Helper()
	var err error
	h.m, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.m.Close() })
	h.Program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 4*4, asm.Word), // __sk_buff.protocol
		asm.JEq.Imm(asm.R6, 0x0608, "pass"),        // ARP
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, h.m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.JEq.Imm(asm.R1, 0, "pass"),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("pass"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Program.Close() })
	return h
}

func (h holder) hold(t *testing.T, lot uint32) {
	t.Helper()
	if err := h.m.Put(uint32(0), lot); err != nil {
		t.Fatal(err)
	}
	if err := Grace(); err != nil {
		t.Fatal(err)
	}
}

// lotGround is a host with a lot to which its eth0 can send what arrives.
type lotGround struct {
	*testnet.Star
	lot    *Lot
	holder holder
	told   []uint32
}

func newLotGround(t *testing.T, clsact bool) *lotGround {
	t.Helper()
	g := &lotGround{Star: testnet.NewStar(t, 0), holder: newHolder(t)}
	c := newCounted(t)
	c.Ingress = g.holder.Program
	d := openDevices(t, g.Balancer, c, "", clsact)
	if err := d.sync(); err != nil {
		t.Fatal(err)
	}
	var err error
	g.Balancer.Do(func() {
		tell := func(index uint32) error { g.told = append(g.told, index); return nil }
		g.lot, err = openLot(lotParams{tell: tell, clsact: clsact})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.lot.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// awaitParked waits until so many frames have been parked.
func (g *lotGround) awaitParked(t *testing.T, n uint64) {
	t.Helper()
	testnet.Eventually(t, 5*time.Second, "parked packets", func() error {
		if c := g.lot.Counts(); c.Parked < n {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// TestLot holds a client's packets while it connects and sends, and lets them go.
func TestLot(t *testing.T) {
	eachHow(t, func(t *testing.T, clsact bool) {
		g := newLotGround(t, clsact)
		// None of this may matter: the packets arrive again at their own device.
		g.Balancer.Sysctl("net.ipv4.conf.all.rp_filter", "1")
		for _, server := range []netip.Addr{g.Balancer.IP4, g.Balancer.IP6} {
			ln, err := g.Balancer.Listen("tcp", netip.AddrPortFrom(server, 8080))
			if err != nil {
				t.Fatal(err)
			}
			conn, err := g.Client.Dial("tcp", netip.AddrPortFrom(server, 8080))
			if err != nil {
				t.Fatal(err)
			}
			accepted, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			g.exchange(t, conn, accepted)
			conn.Close()
			accepted.Close()
			ln.Close()
		}
		if c := g.lot.Counts(); c.Expired+c.Full+c.Failed > 0 {
			t.Errorf("%+v", c)
		}
	})
}

// exchange sends a stream that waits in the lot on its way.
func (g *lotGround) exchange(t *testing.T, conn, accepted net.Conn) {
	t.Helper()
	const size = 1 << 20
	before := g.lot.Counts()
	g.holder.hold(t, uint32(g.lot.index))
	sent := make(chan error, 1)
	go func() {
		_, err := testnet.SendBulk(conn, 1, size)
		sent <- err
	}()
	g.awaitParked(t, before.Parked+1)
	g.holder.hold(t, 0)
	k := newLotKey(flow.TCP, tcpAddr(conn.LocalAddr()), tcpAddr(conn.RemoteAddr()))
	n, err := g.lot.release(k)
	if err != nil || n == 0 {
		t.Errorf("released %d, %v", n, err)
	}
	got, err := testnet.ReceiveBulk(io.LimitReader(accepted, size))
	if err != nil || got != testnet.StreamSum(1, size) {
		t.Errorf("received %v, %v", got, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func tcpAddr(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

// TestLotSavesTheTimeout: a packet that was parked is there at once when the gate opens, not when its sender repeats it.
func TestLotSavesTheTimeout(t *testing.T) {
	testnet.RequireRoot(t)
	g := newLotGround(t, false)
	g.holder.hold(t, uint32(g.lot.index))
	ln, err := g.Balancer.Listen("tcp", netip.AddrPortFrom(g.Balancer.IP4, 8080))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			c.Close()
		}
		accepted <- err
	}()
	dialled := make(chan error, 1)
	from := netip.AddrPortFrom(g.Client.IP4, 40000)
	go func() {
		c, err := g.Client.DialContext(t.Context(), "tcp", from, netip.AddrPortFrom(g.Balancer.IP4, 8080))
		if err == nil {
			c.Close()
		}
		dialled <- err
	}()
	g.awaitParked(t, 1)
	g.holder.hold(t, 0)
	start := time.Now()
	if n, err := g.lot.release(newLotKey(flow.TCP, from, netip.AddrPortFrom(g.Balancer.IP4, 8080))); n != 1 || err != nil {
		t.Fatalf("released %d, %v", n, err)
	}
	if err := errors.Join(<-dialled, <-accepted); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 900*time.Millisecond { // a SYN is repeated after a second
		t.Errorf("connected after %v", d)
	}
}

// TestLotIsHidden: it has no addresses, no neighbours, and no route leads to it.
func TestLotIsHidden(t *testing.T) {
	testnet.RequireRoot(t)
	g := newLotGround(t, false)
	l := mustLink(t, g.Balancer, g.lot.name)
	if !strings.HasPrefix(l.Attrs().Name, lotPrefix) || l.Attrs().RawFlags&unix.IFF_NOARP == 0 {
		t.Errorf("%+v", l.Attrs())
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		addrs, err := g.Balancer.Netlink().AddrList(l, family)
		if err != nil || len(addrs) > 0 {
			t.Errorf("addresses %v, %v", addrs, err)
		}
		routes, err := g.Balancer.Netlink().RouteList(l, family)
		if err != nil || len(routes) > 0 {
			t.Errorf("routes %v, %v", routes, err)
		}
	}
	d := openDevices(t, g.Balancer, newCounted(t), "", false)
	if err := d.attach(g.lot.index); err == nil || !strings.Contains(err.Error(), "a parking lot") {
		t.Errorf("it is attached to like any device: %v", err)
	}
	if err := g.lot.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Balancer.Netlink().LinkByName(l.Attrs().Name); err == nil {
		t.Error("it outlives Close")
	}
	if len(g.told) != 2 || g.told[0] != uint32(l.Attrs().Index) || g.told[1] != 0 {
		t.Errorf("told %v", g.told)
	}
	if _, err := g.lot.release(lotKey{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestLotIsBounded(t *testing.T) {
	l := &Lot{parked: make(map[lotKey]*parked)}
	k := key(flow.TCP, "10.0.0.2:4000", "10.96.0.10:80")
	frame := append(parkedPacket(k, false), make([]byte, 60<<10)...)
	start := time.Now()
	for range lotFlowBytes/len(frame) + 10 {
		l.park(frame, start)
	}
	if l.counts.Full != 10 || l.bytes > lotFlowBytes {
		t.Errorf("of one flow: %+v, %d bytes", l.counts, l.bytes)
	}
	for port := range uint16(80) {
		k.from = netip.AddrPortFrom(k.from.Addr(), port)
		l.park(append(parkedPacket(k, false), make([]byte, 1<<20)...), start.Add(time.Second))
	}
	if l.bytes > lotBytes || l.bytes < lotBytes/2 {
		t.Errorf("together: %+v, %d bytes", l.counts, l.bytes)
	}
	l.park([]byte("strange"), start)
	if l.counts.Strange != 1 {
		t.Errorf("%+v", l.counts)
	}
	l.expire(start.Add(lotAge + time.Millisecond)) // the first flow's
	if l.counts.Expired != uint64(lotFlowBytes/len(frame)) || l.bytes == 0 {
		t.Errorf("%+v, %d bytes", l.counts, l.bytes)
	}
	l.expire(start.Add(lotAge + 2*time.Second))
	if l.bytes != 0 || len(l.parked) != 0 || l.counts.Expired != l.counts.Parked {
		t.Errorf("%+v, %d bytes of %d flows", l.counts, l.bytes, len(l.parked))
	}
}
