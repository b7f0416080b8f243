package bpf

import (
	"bytes"
	"encoding/hex"
	"maps"
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// Verdicts of XDP programs (include/uapi/linux/bpf.h).
const (
	xdpPass     = 2
	xdpRedirect = 4
)

// allow lets XDP use the balancer's devices, and makes both neighbours known.
func (b *bench) allow(t testing.TB) {
	t.Helper()
	for _, l := range []testnet.Link{b.ClientLink, b.BackendLinks[0]} {
		here, there := mustLinkOf(t, l.A), mustLinkOf(t, l.B)
		if err := b.flows.AllowXDP(here.Attrs().Index, here.Attrs().HardwareAddr); err != nil {
			t.Fatal(err)
		}
		for _, addr := range []net.IP{l.B.IP4.AsSlice(), l.B.IP6.AsSlice()} {
			if err := b.Balancer.Netlink().NeighSet(&netlink.Neigh{
				LinkIndex: here.Attrs().Index, IP: addr, HardwareAddr: there.Attrs().HardwareAddr, State: netlink.NUD_PERMANENT,
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func mustLinkOf(t testing.TB, p testnet.Port) netlink.Link {
	t.Helper()
	l, err := p.Host.Netlink().LinkByName(p.Dev)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

type xdpContext struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

// TestFastPackets gives the rows of TestPackets to XDP: it does as the other program, or leaves the packet alone.
func TestFastPackets(t *testing.T) {
	b := &bench{road: newRoad(t, FlowsOptions{Capacity: 16, XDP: true})}
	here := mustLinkOf(t, b.ClientLink.A)
	b.index = uint32(here.Attrs().Index)
	copy(nearMAC, here.Attrs().HardwareAddr)
	b.allow(t)
	for proto, cases := range map[flow.Proto][]packetCase{flow.TCP: tcpCases, flow.UDP: udpCases} {
		for _, tt := range cases {
			t.Run(proto.String()+"/"+tt.name, func(t *testing.T) {
				b.eachWay(t, proto, tt.only4, func(t *testing.T, w *Flow, d Direction) {
					c := codec{spec: w.Spec(), d: d, r: Rewrite{
						Seq: 0x80001234, Ack: 0xfedc4321, TSval: 0xffff0001, TSecr: 0x00010203, Shift: tt.shift,
					}}
					w.SetRewrite(d, c.r)
					goesOn := tt.want.verdict == redirected && tt.want.counts[FlowsForwarded] > 0 &&
						!tt.in.has('S') && !tt.in.has('F') && !tt.in.has('R')
					b.checkFast(t, c, tt.in.of(t, c.spec, d), goesOn)
				})
			})
		}
	}
}

func (b *bench) checkFast(t *testing.T, c codec, in []byte, goesOn bool) {
	t.Helper()
	before := b.counts(t)
	o := ebpf.RunOptions{
		Data: in, DataOut: make([]byte, len(in)+256), Context: xdpContext{DataEnd: uint32(len(in)), IngressIfindex: b.index},
	}
	var verdict uint32
	var err error
	b.Balancer.Do(func() { verdict, err = b.flows.programs.XDP.Run(&o) })
	if err != nil {
		t.Fatal(err)
	}
	want, expected, counts := uint32(xdpPass), in, map[FlowCount]uint64(nil)
	if goesOn {
		want, expected, counts = xdpRedirect, c.forward(in), map[FlowCount]uint64{FlowsForwarded: 1, FlowsFast: 1}
		to := b.BackendLinks[0]
		if c.d == ToClient {
			to = b.ClientLink
		}
		copy(expected, mustLinkOf(t, to.B).Attrs().HardwareAddr)
		copy(expected[6:], mustLinkOf(t, to.A).Attrs().HardwareAddr)
	}
	if verdict != want || !bytes.Equal(o.DataOut, expected) {
		t.Errorf("verdict %d, want %d; packet\n%swant\n%s", verdict, want, hex.Dump(o.DataOut), hex.Dump(expected))
	}
	if got := b.changes(t, before); !maps.Equal(got, counts) {
		t.Errorf("counted %v, want %v", got, counts)
	}
}

// TestFastLeavesAlone: where it is not allowed, on frames for others, and while the gate is not open.
func TestFastLeavesAlone(t *testing.T) {
	b := &bench{road: newRoad(t, FlowsOptions{Capacity: 16, XDP: true})}
	here := mustLinkOf(t, b.ClientLink.A)
	b.index = uint32(here.Attrs().Index)
	copy(nearMAC, here.Attrs().HardwareAddr)
	w := b.add(t, b.spec(flow.TCP, false), offset{})
	in := segment{seq: 1, ack: 1, payload: 5}.of(t, w.Spec(), ToBackend)
	c := codec{spec: w.Spec(), d: ToBackend}
	b.checkFast(t, c, in, false)
	b.allow(t)
	b.checkFast(t, c, in, true)
	for _, g := range []Gate{GateWatch, GateDrain, GateFreeze, GateReset} {
		w.SetGate(g)
		b.checkFast(t, c, in, false)
	}
	w.SetGate(GateForward)
	others := bytes.Clone(in)
	others[5] ^= 1
	b.checkFast(t, c, others, false)
	if err := b.flows.ForbidXDP(mustLinkOf(t, b.BackendLinks[0].A).Attrs().Index); err != nil {
		t.Fatal(err)
	}
	b.checkFast(t, c, in, false)
}
