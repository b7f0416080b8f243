package bpf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
)

// bareOf is what passes of a segment whose payload is held: its acknowledgement.
func bareOf(_ testing.TB, _ codec, in []byte) []byte {
	b := slices.Clone(in[etherLen:])
	at := transportOf(b)
	b = b[:at+int(b[at+12]>>4)*4]
	b[at+13] &^= 1
	return slices.Concat(in[:etherLen], finish(b))
}

// resetOf answers a segment.
func resetOf(t testing.TB, c codec, in []byte) []byte {
	b := in[etherLen:]
	at := transportOf(b)
	from, to := c.spec.Frontend, c.spec.Client
	if c.d == ToClient {
		from, to = c.spec.Local, c.spec.Backend
	}
	out := segment{flags: "RN", seq: binary.BigEndian.Uint32(b[at+8:])}.frame(t, flow.TCP, from, to)
	copy(out[:12], in)
	o := out[etherLen:]
	if o[0]>>4 == 6 {
		copy(o[:4], b)
		return out
	}
	o[1] = b[1]
	copy(o[4:8], b[4:8])
	return slices.Concat(out[:etherLen], finish(o))
}

var (
	held     = expectation{verdict: dropped, counts: map[FlowCount]uint64{FlowsHeld: 1}}
	bare     = expectation{toStack, bareOf, map[FlowCount]uint64{FlowsHeld: 1}}
	reset    = expectation{redirected, resetOf, map[FlowCount]uint64{FlowsReset: 1}}
	silence  = expectation{verdict: dropped}
	newFlow  = expectation{toStack, nil, map[FlowCount]uint64{FlowsStale: 1}}
	earlier  = segment{seq: 1000, ack: 2000, options: usual, payload: 100} // lets 1000 to 1099 through
	gateStep = []packetCase{
		{name: "acknowledgement", gate: GateWatch, in: segment{seq: 1100, ack: 2000, options: usual}, want: stacked},
		{name: "data", gate: GateWatch, in: segment{seq: 1100, ack: 2000, options: usual, payload: 100}, want: stacked},
		{name: "SYN", gate: GateWatch, in: segment{flags: "SN", seq: 1, options: ofSYN}, want: stacked},
		{name: "reset", gate: GateWatch, in: segment{flags: "R", seq: 1100}, want: stacked},
		{name: "first fragment", gate: GateWatch, in: segment{seq: 1100, payload: 80, fragment: "first"}, want: stacked, only4: true},

		{name: "acknowledgement", gate: GateDrain, in: segment{seq: 1100, ack: 2000, options: usual}, want: stacked},
		{name: "acknowledgement beyond what is held", gate: GateDrain, in: segment{seq: 9000, ack: 2000, options: usual}, want: stacked},
		{name: "data of before", gate: GateDrain, in: segment{seq: 1000, ack: 2000, options: usual, payload: 100}, want: stacked},
		{name: "hole that is filled", gate: GateDrain, in: segment{seq: 900, ack: 2000, options: usual, payload: 100}, want: stacked},
		{name: "new data", gate: GateDrain, in: segment{seq: 1100, ack: 2000, options: usual, payload: 77}, want: bare},
		{name: "new data without options", gate: GateDrain, in: segment{seq: 1100, ack: 2000, payload: 78}, want: bare},
		{name: "a byte more than before", gate: GateDrain, in: segment{seq: 1000, ack: 2000, options: usual, payload: 101}, want: bare},
		{name: "FIN", gate: GateDrain, in: segment{flags: "F", seq: 1100, ack: 2000, options: usual}, want: bare},
		{name: "new data without acknowledgement", gate: GateDrain, in: segment{flags: "NP", seq: 1100, payload: 1}, want: held},
		{name: "new data with IP options", gate: GateDrain, in: segment{seq: 1100, payload: 8, ipOptions: []byte{148, 4, 0, 0}}, want: held, only4: true},
		{name: "first fragment", gate: GateDrain, in: segment{seq: 1100, payload: 80, fragment: "first"}, want: held, only4: true},
		{name: "reset", gate: GateDrain, in: segment{flags: "R", seq: 1100}, want: stacked},

		{name: "acknowledgement", gate: GateFreeze, in: segment{seq: 1100, ack: 2000, options: usual}, want: held},
		{name: "data of before", gate: GateFreeze, in: segment{seq: 1000, ack: 2000, options: usual, payload: 100}, want: held},
		{name: "reset", gate: GateFreeze, in: segment{flags: "R", seq: 1100}, want: held},
		{name: "reset with another number", gate: GateFreeze, in: segment{flags: "R", seq: 1101}, want: held},
		{name: "SYN", gate: GateFreeze, in: segment{flags: "SN", seq: 1, options: ofSYN}, want: held},
		{name: "first fragment", gate: GateFreeze, in: segment{seq: 1100, payload: 80, fragment: "first"}, want: held, only4: true},

		{name: "data", gate: GateReset, in: segment{flags: "P", seq: 1100, ack: 2000, options: usual, payload: 99, tos: 4}, want: reset},
		{name: "data without options", gate: GateReset, in: segment{seq: 1100, ack: 2000, payload: 100}, want: reset},
		{name: "acknowledgement", gate: GateReset, in: segment{seq: 1100, ack: 0xffffffff, options: sack3}, want: reset},
		{name: "FIN", gate: GateReset, in: segment{flags: "F", seq: 1100, ack: 2000}, want: reset},
		{name: "reset", gate: GateReset, in: segment{flags: "R", seq: 1100}, want: silence},
		{name: "data without acknowledgement", gate: GateReset, in: segment{flags: "NP", seq: 1100, payload: 1}, want: silence},
		{name: "SYN", gate: GateReset, in: segment{flags: "SN", seq: 1, options: ofSYN}, want: newFlow},

		{name: "SYN", gate: GateStale, in: segment{flags: "SN", seq: 1, options: ofSYN}, want: stacked},
		{name: "data", gate: GateStale, in: segment{seq: 1100, ack: 2000, options: usual, payload: 100}, want: stacked},
	}
)

func TestGate(t *testing.T) {
	b := newBench(t)
	for _, tt := range gateStep {
		t.Run(tt.gate.String()+"/"+tt.name, func(t *testing.T) {
			b.eachWay(t, flow.TCP, tt.only4, func(t *testing.T, w *Flow, d Direction) {
				w.SetGate(GateWatch)
				s := w.Spec()
				if verdict, _ := b.run(t, b.flows.programs.Ingress, earlier.of(t, s, d), flowSkBuff{}); verdict != toStack {
					t.Fatalf("verdict %d", verdict)
				}
				before := w.State().Directions[d]
				if tt.gate == GateStale {
					w.at.Gate = flowGateGATE_STALE
				} else {
					w.SetGate(tt.gate)
				}
				b.check(t, b.flows.programs.Ingress, codec{spec: s, d: d}, tt.in.of(t, s, d), tt.want)
				after := w.State().Directions[d]
				if after.Enter != after.Leave || after.Packets != 0 {
					t.Errorf("after it: %+v", after)
				}
				b.checkTrack(t, tt, before, after)
			})
		})
	}
}

// checkTrack compares what is remembered.
func (b *bench) checkTrack(t *testing.T, tt packetCase, before, after DirectionState) {
	t.Helper()
	passed := tt.want.verdict == toStack && tt.gate < GateForward
	data := tt.in.payload > 0 || tt.in.has('F')
	end := before.End
	if passed && data && tt.want.packet == nil && !tt.in.has('R') {
		end = max(end, tt.in.seq+uint32(tt.in.payload))
	}
	if after.End != end {
		t.Errorf("end %d, want %d", after.End, end)
	}
	reset, frozen := tt.in.has('R'), tt.gate == GateFreeze
	if after.Reset != (reset && !frozen) || after.HeldReset != (reset && frozen && tt.in.seq == before.End) {
		t.Errorf("reset: %v, held %v", after.Reset, after.HeldReset)
	}
	hold := tt.want.counts[FlowsHeld] > 0
	if after.Held != hold || after.HasHeldTSval != (hold && len(tt.in.options) > 0) {
		t.Errorf("held: %v, timestamp %v", after.Held, after.HasHeldTSval)
	}
	if after.Dirty != (passed && tt.in.fragment != "") {
		t.Errorf("dirty: %v", after.Dirty)
	}
}

// TestHeldReset: without data nobody knows which number is right, and the gate's next turn forgets it. What passes is
// forgotten on demand.
func TestHeldReset(t *testing.T) {
	b := newBench(t)
	w := b.add(t, b.spec(flow.TCP, false), offset{})
	seen := func() (held, passed bool) {
		t.Helper()
		b.run(t, b.flows.programs.Ingress, segment{flags: "R", seq: 77}.of(t, w.Spec(), ToClient), flowSkBuff{})
		d := w.State().Directions[ToClient]
		return d.HeldReset, d.Reset
	}
	w.SetGate(GateWatch)
	w.SetGate(GateFreeze)
	if held, passed := seen(); !held || passed {
		t.Errorf("at a shut gate: held %v, passed %v", held, passed)
	}
	w.SetGate(GateWatch)
	if held, passed := seen(); !held || !passed {
		t.Errorf("at an open one: held %v, passed %v", held, passed)
	}
	w.ForgetReset()
	w.SetGate(GateDrain)
	if d := w.State().Directions[ToClient]; d.HeldReset || d.Reset {
		t.Errorf("forgotten: %+v", d)
	}
}

// TestDatagramsPassEveryGate: a session has its socket all the time.
func TestDatagramsPassEveryGate(t *testing.T) {
	b := newBench(t)
	for _, g := range []Gate{GateWatch, GateDrain, GateFreeze, GateReset} {
		t.Run(g.String(), func(t *testing.T) {
			b.eachWay(t, flow.UDP, false, func(t *testing.T, w *Flow, d Direction) {
				w.SetGate(g)
				b.check(t, b.flows.programs.Ingress, codec{}, segment{payload: 10}.of(t, w.Spec(), d), stacked)
			})
		})
	}
}

// TestFirstHeldTimestamp: what is held first has the oldest, and the gate's next turn forgets it.
func TestFirstHeldTimestamp(t *testing.T) {
	b := newBench(t)
	w := b.add(t, b.spec(flow.TCP, false), offset{})
	hold := func(stamp byte) {
		o := slices.Clone(usual)
		o[7] = stamp
		b.run(t, b.flows.programs.Ingress, segment{seq: 1, ack: 1, options: o, payload: 10}.of(t, w.Spec(), ToBackend), flowSkBuff{})
	}
	for _, round := range []byte{10, 50} {
		w.SetGate(GateWatch)
		w.SetGate(GateDrain)
		hold(round)
		w.SetGate(GateFreeze)
		hold(round + 1)
		if got := w.State().Directions[ToBackend]; !got.HasHeldTSval || got.HeldTSval != 0x100+uint32(round) || got.HasEnd {
			t.Errorf("%+v", got)
		}
	}
}

func TestNobodysPackets(t *testing.T) {
	b := newBench(t)
	for _, proto := range []flow.Proto{flow.TCP, flow.UDP} {
		b.eachWay(t, proto, false, func(t *testing.T, w *Flow, d Direction) {
			s := w.Spec()
			others := map[string][]byte{
				"another port": segment{payload: 9}.frame(t, proto, s.Client, s.Backend),
				"back":         segment{payload: 9}.frame(t, proto, s.Frontend, s.Client),
				"no packet":    make([]byte, 60),
			}
			frame := segment{payload: 9}.of(t, s, d)
			for n := etherLen + transportOf(frame[etherLen:]); n < len(frame); n++ { // the kernel runs nothing on less
				others["cut"+hex.EncodeToString([]byte{byte(n)})] = frame[:n]
			}
			other := slices.Clone(frame)
			other[0] ^= 2
			others["another host's"] = other
			for name, in := range others {
				before := b.counts(t)
				verdict, out := b.run(t, b.flows.programs.Ingress, in, flowSkBuff{})
				if verdict != toStack || !bytes.Equal(in, out) {
					t.Errorf("%s: verdict %d\n%s", name, int32(verdict), hex.Dump(out))
				}
				if c := b.changes(t, before); len(c) != 0 {
					t.Errorf("%s: counted %v", name, c)
				}
			}
		})
	}
}
