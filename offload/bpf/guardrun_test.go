package bpf

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// Verdicts of the program (enum sk_action of the kernel).
const (
	skDrop = 0
	skPass = 1
)

// lookupFrom is lookup for the packet of a certain client.
func lookupFrom(from netip.Addr, proto flow.Proto, to netip.AddrPort) *guardBpfSkLookup {
	ctx := lookup(proto, to)
	if from.Is4() {
		b := from.As4()
		ctx.RemoteIp4 = binary.NativeEndian.Uint32(b[:])
		return ctx
	}
	ctx.RemoteIp6 = addressKey(from).Words
	return ctx
}

// lookup is what the kernel asks the program when a packet arrives.
func lookup(proto flow.Proto, to netip.AddrPort) *guardBpfSkLookup {
	ctx := &guardBpfSkLookup{Protocol: uint32(proto), LocalPort: uint32(to.Port()), Family: unix.AF_INET6}
	if to.Addr().Is4() {
		b := to.Addr().As4()
		ctx.Family, ctx.LocalIp4 = unix.AF_INET, binary.NativeEndian.Uint32(b[:])
		return ctx
	}
	ctx.LocalIp6 = addressKey(to.Addr()).Words
	return ctx
}

func TestProgram(t *testing.T) {
	g := newGround(t, GuardOptions{})
	shared4, shared6 := g.listenShared(t, netip.MustParseAddr("127.0.0.1")), g.listenShared(t, netip.IPv6Loopback())
	silent := make(map[lb.FrontendKey]uint64) // cookies by protocol and address
	for _, fd := range g.guard.silent {
		k, err := socketKey(fd)
		if err != nil {
			t.Fatal(err)
		}
		k.Address = netip.AddrPortFrom(k.Address.Addr(), 0)
		silent[k] = cookie(t, fd)
	}
	silentOf := func(proto flow.Proto, loopback string) uint64 {
		return silent[lb.FrontendKey{Proto: proto, Address: netip.AddrPortFrom(netip.MustParseAddr(loopback), 0)}]
	}

	rules := make(map[lb.FrontendKey]Rule)
	for _, proto := range []flow.Proto{flow.TCP, flow.UDP} {
		for _, vip := range append([]netip.Addr{netip.MustParseAddr("192.0.2.7")}, vips...) {
			for port, a := range map[uint16]Answer{1: AnswerOwn, 2: AnswerShared, 3: AnswerSilent, 4: AnswerRefuse, 5: 77} {
				rules[lb.FrontendKey{Proto: proto, Address: netip.AddrPortFrom(vip, port)}] = Rule{All: a}
			}
		}
	}
	for _, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		for port, a := range map[uint16]Answer{4: AnswerSilent, 6: AnswerShared, 7: AnswerRefuse} {
			rules[lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(any, port)}] = Rule{All: a}
		}
	}
	g.update(t, GuardUpdate{Protect: vips, Rules: rules})

	for _, tt := range []struct {
		name   string
		proto  flow.Proto
		to     string
		want   uint32
		socket uint64 // its cookie; 0 = none selected
		counts GuardCounts
	}{
		{"own", flow.TCP, "10.96.0.10:1", skPass, 0, GuardCounts{}},
		{"own, IPv6", flow.UDP, "[fd96::10]:1", skPass, 0, GuardCounts{}},
		{"shared", flow.TCP, "10.96.0.10:2", skPass, g.cookie(t, shared4), GuardCounts{Shared: 1}},
		{"shared, IPv6", flow.TCP, "[fd96::10]:2", skPass, g.cookie(t, shared6), GuardCounts{Shared: 1}},
		{"shared, but there is no such socket", flow.UDP, "10.96.0.10:2", skDrop, 0, GuardCounts{NoSocket: 1}},
		{"silent", flow.TCP, "10.96.0.10:3", skPass, silentOf(flow.TCP, "127.0.0.1"), GuardCounts{Silent: 1}},
		{"silent, IPv6", flow.TCP, "[fd96::10]:3", skPass, silentOf(flow.TCP, "::1"), GuardCounts{Silent: 1}},
		{"silent, UDP", flow.UDP, "10.96.0.10:3", skPass, silentOf(flow.UDP, "127.0.0.1"), GuardCounts{Silent: 1}},
		{"silent, UDP, IPv6", flow.UDP, "[fd96::10]:3", skPass, silentOf(flow.UDP, "::1"), GuardCounts{Silent: 1}},
		{"refuse", flow.TCP, "10.96.0.10:4", skDrop, 0, GuardCounts{Refused: 1}},
		{"refuse, UDP, IPv6", flow.UDP, "[fd96::10]:4", skDrop, 0, GuardCounts{Refused: 1}},
		{"answer of another version", flow.TCP, "10.96.0.10:5", skDrop, 0, GuardCounts{Refused: 1}},
		{"no frontend", flow.TCP, "10.96.0.10:22", skDrop, 0, GuardCounts{Closed: 1}},
		{"no frontend, UDP, IPv6", flow.UDP, "[fd96::10]:22", skDrop, 0, GuardCounts{Closed: 1}},
		{"port with both bytes the same way round", flow.TCP, "10.96.0.10:256", skDrop, 0, GuardCounts{Closed: 1}},
		{"no VIP", flow.TCP, "10.96.0.11:1", skPass, 0, GuardCounts{}},
		{"no VIP, IPv6", flow.UDP, "[fd96::11]:2", skPass, 0, GuardCounts{}},
		{"VIP in another family's dress", flow.TCP, "[::a60:a]:22", skPass, 0, GuardCounts{}},
		{"frontend at an address of the host", flow.TCP, "192.0.2.7:3", skPass, silentOf(flow.TCP, "127.0.0.1"), GuardCounts{Silent: 1}},
		{"refuse at an address of the host", flow.UDP, "192.0.2.7:4", skDrop, 0, GuardCounts{Refused: 1}},
		{"wildcard", flow.TCP, "192.0.2.7:6", skPass, g.cookie(t, shared4), GuardCounts{Shared: 1}},
		{"wildcard, IPv6", flow.TCP, "[2001:db8::7]:6", skPass, g.cookie(t, shared6), GuardCounts{Shared: 1}},
		{"wildcard at the loopback address", flow.TCP, "127.0.0.1:6", skPass, g.cookie(t, shared4), GuardCounts{Shared: 1}},
		{"wildcard of the other protocol", flow.UDP, "192.0.2.7:6", skPass, 0, GuardCounts{}},
		{"wildcard is not at VIPs", flow.TCP, "10.96.0.10:6", skDrop, 0, GuardCounts{Closed: 1}},
		{"wildcard is not at VIPs, IPv6", flow.TCP, "[fd96::10]:6", skDrop, 0, GuardCounts{Closed: 1}},
		{"wildcard refuses", flow.TCP, "[2001:db8::7]:7", skDrop, 0, GuardCounts{Refused: 1}},
		{"wildcard and an address of its own", flow.TCP, "192.0.2.7:4", skDrop, 0, GuardCounts{Refused: 1}},
		{"other port there", flow.TCP, "192.0.2.7:22", skPass, 0, GuardCounts{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := g.counts(t)
			var out guardBpfSkLookup
			got, err := g.guard.objects.Guard.Run(&ebpf.RunOptions{
				Context: lookup(tt.proto, netip.MustParseAddrPort(tt.to)), ContextOut: &out,
			})
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want || out.Cookie != tt.socket {
				t.Errorf("verdict %d with socket %d, want %d with %d", got, out.Cookie, tt.want, tt.socket)
			}
			if c := g.counts(t).minus(before); c != tt.counts {
				t.Errorf("counted %+v, want %+v", c, tt.counts)
			}
		})
	}
}

func (g *ground) counts(t *testing.T) GuardCounts {
	t.Helper()
	c, err := g.guard.Counts()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c GuardCounts) minus(d GuardCounts) GuardCounts {
	return GuardCounts{c.Shared - d.Shared, c.Silent - d.Silent, c.Refused - d.Refused, c.Closed - d.Closed, c.NoSocket - d.NoSocket, c.Denied - d.Denied}
}

func cookie(t *testing.T, fd int) uint64 {
	t.Helper()
	v, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (g *ground) cookie(t *testing.T, ln *net.TCPListener) (v uint64) {
	t.Helper()
	raw, err := ln.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { v = cookie(t, int(fd)) }); err != nil {
		t.Fatal(err)
	}
	return v
}

// frontends makes n of them, at VIPs of their own.
func frontends(n int) (u GuardUpdate) {
	u.Rules = make(map[lb.FrontendKey]Rule, n)
	for i := range n {
		vip := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})
		u.Protect = append(u.Protect, vip)
		u.Rules[lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(vip, 80)}] = Rule{All: AnswerShared}
	}
	return u
}

// BenchmarkProgram is what a SYN or a datagram pays, with 30,000 frontends.
func BenchmarkProgram(b *testing.B) {
	testnet.RequireRoot(b)
	const repeat = 10_000
	guard := newGuard(b, GuardOptions{})
	all := frontends(30_000)
	sources := Sources{Inside: prefixes("198.51.100.0/24", "203.0.113.0/24"), Allow: prefixes("0.0.0.0/0")}
	for i := range byte(16) {
		sources.Inside = append(sources.Inside, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, i, 0}), 24))
	}
	all.Rules[lb.FrontendKey{Proto: flow.TCP, Address: netip.MustParseAddrPort("10.96.0.9:81")}] = Rule{All: AnswerShared, Sources: sources}
	if err := guard.Update(all); err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct{ name, to string }{
		{"closed port of a VIP", "10.96.0.9:22"}, {"no VIP", "192.0.2.7:22"}, {"frontend", "10.96.0.9:80"},
		{"frontend, by who asks", "10.96.0.9:81"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			ctx := lookup(flow.TCP, netip.MustParseAddrPort(bb.to))
			for b.Loop() {
				if _, err := guard.objects.Guard.Run(&ebpf.RunOptions{Context: ctx, Repeat: repeat}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/repeat, "ns/packet")
		})
	}
}

// BenchmarkUpdate is what the first configuration of 30,000 frontends costs, growth of the tables included.
func BenchmarkUpdate(b *testing.B) {
	testnet.RequireRoot(b)
	u := frontends(30_000)
	for b.Loop() {
		b.StopTimer()
		guard := newGuard(b, GuardOptions{})
		b.StartTimer()
		if err := guard.Update(u); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := guard.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
