package bpf

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/baton-lb/baton/internal/flow"
)

// router is who sends an ICMP error that is not the other side's own.
var router = map[bool]netip.Addr{false: netip.MustParseAddr("198.51.100.9"), true: netip.MustParseAddr("2001:db8::9")}

// errorAbout is an ICMP error about a packet that was on its way from one address to another.
func errorAbout(t testing.TB, from netip.Addr, kind, code uint8, rest uint32, quoted []byte) []byte {
	t.Helper()
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], rest)
	to, _ := netip.AddrFromSlice(quoted[12:16])
	if from.Is6() {
		to, _ = netip.AddrFromSlice(quoted[8:24])
		ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 60, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, code)}
		_ = icmp.SetNetworkLayerForChecksum(ip)
		return segment{}.ether(serialize(t, ip, icmp, gopacket.Payload(b[:]), gopacket.Payload(quoted)))
	}
	ip := &layers.IPv4{Version: 4, TOS: 0xc0, TTL: 60, Protocol: layers.IPProtocolICMPv4, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	icmp := &layers.ICMPv4{
		TypeCode: layers.CreateICMPv4TypeCode(kind, code), Id: binary.BigEndian.Uint16(b[:2]), Seq: binary.BigEndian.Uint16(b[2:]),
	}
	return segment{}.ether(serialize(t, ip, icmp, gopacket.Payload(quoted)))
}

// TestErrorsAreTranslated: an error about a packet that was sent on reaches its sender as one about what that had sent.
func TestErrorsAreTranslated(t *testing.T) {
	b := newBench(t)
	type kind struct {
		name         string
		t4, c4       uint8
		t6, c6       uint8
		rest         uint32
		far, toStack bool
	}
	for _, k := range []kind{
		{name: "too big, says a router", t4: 3, c4: 4, t6: 2, c6: 0, rest: 1300, far: true},
		{name: "port unreachable, says the other side", t4: 3, c4: 3, t6: 1, c6: 4},
		{name: "host unreachable, says a router", t4: 3, c4: 1, t6: 1, c6: 3, far: true},
		{name: "time exceeded", t4: 11, c4: 0, t6: 3, c6: 0, far: true},
		{name: "parameter problem", t4: 12, c4: 0, t6: 4, c6: 1, rest: 8 << 24, far: true},
		{name: "echo request", t4: 8, c4: 0, t6: 128, c6: 0, toStack: true},
		{name: "redirect", t4: 5, c4: 1, t6: 137, c6: 0, far: true, toStack: true},
	} {
		for _, proto := range []flow.Proto{flow.TCP, flow.UDP} {
			t.Run(proto.String()+"/"+k.name, func(t *testing.T) {
				b.eachWay(t, proto, false, func(t *testing.T, w *Flow, d Direction) {
					s := w.Spec()
					c := codec{spec: s, d: d, r: Rewrite{Seq: 0x80001234}}
					w.SetRewrite(d, c.r)
					original := segment{seq: 0xfffffff0, ack: 5, payload: 21}.of(t, s, d)
					on := c.forward(original)
					quoted := on[etherLen:]
					// The error comes from where the packet went, to where that seemed to come from.
					other := s.tuple(d.Other())
					from := addrPort(other.Source, other.SourcePort).Addr()
					back := s.tuple(d)
					says := addrPort(back.Destination, back.DestinationPort).Addr()
					if k.far {
						from = router[from.Is6()]
						says = from
					}
					kind, code := k.t4, k.c4
					if from.Is6() {
						kind, code = k.t6, k.c6
					}
					in := errorAbout(t, from, kind, code, k.rest, quoted)
					want := stacked
					// Of datagrams' errors our sockets hear.
					if !k.toStack && proto == flow.TCP {
						quoted := slices.Clone(original[etherLen:])
						copyHeaderLeftovers(quoted, on[etherLen:])
						out := errorAbout(t, says, kind, code, k.rest, quoted)
						hop := out[etherLen:]
						if from.Is6() {
							hop[7]--
						} else {
							hop[8]--
							hop[10], hop[11] = 0, 0
							binary.BigEndian.PutUint16(hop[10:], ^sum16(hop[:20], 0))
						}
						want = expectation{redirected, func(testing.TB, codec, []byte) []byte { return out }, map[FlowCount]uint64{FlowsTranslated: 1}}
					}
					b.check(t, b.flows.programs.Ingress, c, in, want)
				})
			})
		}
	}
}

// copyHeaderLeftovers makes of the packet as it was sent what its quotation looks like: our hop, and beyond the ports and
// the sequence number what was sent on. Nobody reads that.
func copyHeaderLeftovers(b, on []byte) {
	at := transportOf(b)
	if b[0]>>4 == 6 {
		b[7] = on[7]
	} else {
		b[8] = on[8]
		b[10], b[11] = 0, 0
		binary.BigEndian.PutUint16(b[10:], ^sum16(b[:20], 0))
	}
	copy(b[at+8:], on[at+8:])
	if wireProtocol(b) == byte(flow.UDP) {
		copy(b[at+4:], on[at+4:])
	}
}

// TestErrorsOfOthers are the stack's.
func TestErrorsOfOthers(t *testing.T) {
	b := newBench(t)
	b.eachWay(t, flow.TCP, false, func(t *testing.T, w *Flow, d Direction) {
		s := w.Spec()
		on := codec{spec: s, d: d}.forward(segment{seq: 1, payload: 9}.of(t, s, d))[etherLen:]
		other := slices.Clone(on)
		other[transportOf(other)+3] ^= 1
		from := router[s.Client.Addr().Is6()]
		kind, code := uint8(3), uint8(4)
		if from.Is6() {
			kind, code = 2, 0
		}
		b.check(t, b.flows.programs.Ingress, codec{}, errorAbout(t, from, kind, code, 1300, other), stacked)
		b.check(t, b.flows.programs.Ingress, codec{}, errorAbout(t, from, kind, code, 1300, on[:transportOf(on)+4]), stacked)
		w.SetGate(GateWatch) // the socket is there
		b.check(t, b.flows.programs.Ingress, codec{}, errorAbout(t, from, kind, code, 1300, on), stacked)
	})
}

// errorsPerTick and tick are ERRORS_PER_TICK and 1 << TICK_SHIFT of error.h.
const (
	errorsPerTick = 64
	tick          = 1 << 24 * time.Nanosecond
)

// TestErrorsAreFew: a flood of packets that cannot go on is not answered by a flood. The longer it lasts, the more answers
// there may be: each processor has so many for every tick that begins meanwhile. Only a slow machine answers all.
func TestErrorsAreFew(t *testing.T) {
	b := newBench(t)
	w := b.add(t, b.spec(flow.TCP, false), offset{})
	in := segment{seq: 1, ack: 1, payload: 1500}.of(t, w.Spec(), ToBackend)
	before := b.counts(t)
	const n = 2000
	began := time.Now()
	for range n {
		b.run(t, b.flows.programs.Ingress, in, flowSkBuff{})
	}
	ticks := uint64(time.Since(began)/tick) + 2
	c := b.changes(t, before)
	if c[FlowsTooBig] == 0 || c[FlowsTooBig]+c[FlowsUntold] != n {
		t.Errorf("counted %v", c)
	}
	if most := errorsPerTick * ticks * uint64(runtime.NumCPU()); c[FlowsTooBig] > most {
		t.Errorf("%d answers in %d ticks, want %d at most", c[FlowsTooBig], ticks, most)
	}
	events := 0
	for _, e := range b.events(t, w) {
		if e.What == EventTooBig {
			events++
			if e.MTU != 1500 || e.Direction != ToBackend {
				t.Errorf("told %+v", e)
			}
		}
	}
	if uint64(events) != c[FlowsTooBig] {
		t.Errorf("%d events", events)
	}
}
