package bpf

import (
	"slices"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
)

// ownFrame is a packet that our stack sends on a flow, against a direction.
func ownFrame(t testing.TB, g segment, s FlowSpec, d Direction) []byte {
	t.Helper()
	if d == ToBackend {
		return g.frame(t, s.Proto, s.Frontend, s.Client)
	}
	return g.frame(t, s.Proto, s.Local, s.Backend)
}

func TestOwnPackets(t *testing.T) {
	b := newBench(t)
	data := segment{seq: 1, ack: 2, options: usual, payload: 9}
	for _, tt := range []struct {
		name  string
		proto flow.Proto
		gate  Gate
		in    segment
		want  expectation
	}{
		{"watched", flow.TCP, GateWatch, data, stacked},
		{"draining", flow.TCP, GateDrain, data, stacked},
		{"frozen", flow.TCP, GateFreeze, data, stacked},
		{"forwarded", flow.TCP, GateForward, data, drop(FlowsOwn)},
		{"reset of a forwarded one", flow.TCP, GateForward, segment{flags: "R", seq: 1}, drop(FlowsOwn)},
		{"ended", flow.TCP, GateReset, data, drop(FlowsOwn)},
		{"the end of it", flow.TCP, GateReset, segment{flags: "R", seq: 1}, stacked},
		{"datagram beside the way", flow.UDP, GateForward, segment{payload: 9}, stacked},
		{"SYN", flow.TCP, GateWatch, segment{flags: "SN", seq: 1, options: ofSYN}, stacked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b.eachWay(t, tt.proto, false, func(t *testing.T, w *Flow, d Direction) {
				w.SetGate(tt.gate)
				b.check(t, b.flows.programs.Egress, codec{}, ownFrame(t, tt.in, w.Spec(), d), tt.want)
				if got := w.at.Paths[d.Other()].Device; got != b.index {
					t.Errorf("device %d is remembered, want %d", got, b.index)
				}
			})
		})
	}
}

// TestMirror: our SYN to the backend is without what the client's was without.
func TestMirror(t *testing.T) {
	b := newBench(t)
	blank := func(from, to int) []byte {
		o := slices.Clone(ofSYN)
		for i := from; i < to; i++ {
			o[i] = 1
		}
		return o
	}
	for _, tt := range []struct {
		name   string
		spec   FlowSpec
		in     []byte
		want   []byte
		change bool
	}{
		{"nothing", FlowSpec{}, ofSYN, ofSYN, false},
		{"timestamps", FlowSpec{NoTimestamps: true}, ofSYN, blank(6, 16), true},
		{"SACK", FlowSpec{NoSACK: true}, ofSYN, blank(4, 6), true},
		{"both", FlowSpec{NoTimestamps: true, NoSACK: true}, ofSYN, blank(4, 16), true},
		{"both, of none", FlowSpec{NoTimestamps: true, NoSACK: true}, []byte{2, 4, 5, 180}, []byte{2, 4, 5, 180}, true},
		{"both, no options", FlowSpec{NoTimestamps: true, NoSACK: true}, nil, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, ipv6 bool) {
				s := b.spec(flow.TCP, ipv6)
				s.NoTimestamps, s.NoSACK = tt.spec.NoTimestamps, tt.spec.NoSACK
				w, err := b.flows.Add(s, GateWatch)
				if err != nil {
					t.Fatal(err)
				}
				defer w.Delete()
				want := expectation{verdict: toStack, packet: func(t testing.TB, _ codec, in []byte) []byte {
					return ownFrame(t, segment{flags: "SN", seq: 9, window: 7, options: tt.want}, s, ToClient)
				}}
				if tt.change {
					want.counts = map[FlowCount]uint64{FlowsMirrored: 1}
				}
				in := segment{flags: "SN", seq: 9, window: 7, options: tt.in}
				b.check(t, b.flows.programs.Egress, codec{}, ownFrame(t, in, s, ToClient), want)
				// Not the SYN-ACK to the client.
				b.check(t, b.flows.programs.Egress, codec{}, ownFrame(t, segment{flags: "S", options: ofSYN}, s, ToBackend), stacked)
			})
		})
	}
}
