package bpf

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
)

// bystander is a flow that no mutated packet may touch.
type bystander struct {
	flow  *Flow
	state FlowState
}

func (b *bench) bystanders(t testing.TB) (all []bystander) {
	for _, proto := range []flow.Proto{flow.TCP, flow.UDP} {
		for _, g := range []Gate{GateWatch, GateForward} {
			s := specFor(len(all))
			s.Proto = proto
			w, err := b.flows.Add(s, g)
			must(t, err)
			all = append(all, bystander{w, w.State()})
		}
	}
	return all
}

// mutate changes some bits, or cuts the packet, or makes it longer.
func mutate(r *rand.Rand, frame []byte) []byte {
	b := slices.Clone(frame)
	for range 1 + r.IntN(4) {
		b[etherLen+r.IntN(min(len(b)-etherLen, 80))] ^= 1 << r.IntN(8)
	}
	switch r.IntN(4) {
	case 0:
		least := etherLen + 40 // the kernel runs nothing on less than a network header
		b = b[:min(len(b), least+r.IntN(max(1, len(b)-least)))]
	case 1:
		b = append(b, make([]byte, r.IntN(64))...)
	}
	return b
}

// seeds are packets of every kind.
func (b *bench) seeds(t testing.TB, tcp, udp *Flow) (all [][]byte) {
	for _, tt := range tcpCases {
		if !tt.only4 || tcp.Spec().Client.Addr().Is4() {
			all = append(all, tt.in.of(t, tcp.Spec(), ToBackend), tt.in.of(t, tcp.Spec(), ToClient))
		}
	}
	for _, tt := range udpCases {
		if !tt.only4 || udp.Spec().Client.Addr().Is4() {
			all = append(all, tt.in.of(t, udp.Spec(), ToBackend))
		}
	}
	from := router[tcp.Spec().Client.Addr().Is6()]
	kind, code := uint8(3), uint8(4)
	if from.Is6() {
		kind, code = 2, 0
	}
	quoted := codec{spec: tcp.Spec(), d: ToBackend}.forward(all[0])[etherLen:]
	return append(all, errorAbout(t, from, kind, code, 1300, quoted))
}

// tryMutated gives a packet to all programs. No other flow changes; what goes to the stack is as it was, or is an
// acknowledgement without its payload; and what goes on is no longer than it was, but for an error.
func (b *bench) tryMutated(t testing.TB, in []byte, others []bystander) {
	t.Helper()
	verdict, out := b.run(t, b.flows.programs.Ingress, in, flowSkBuff{})
	switch verdict {
	case toStack:
		if !bytes.Equal(in, out) && len(out) >= len(in) {
			t.Errorf("changed on its way to the stack:\n% x\n% x", in, out)
		}
	case redirected, dropped:
		if len(out) > len(in) && len(out) > etherLen+48+60 {
			t.Errorf("grew from %d to %d bytes", len(in), len(out))
		}
	default:
		t.Errorf("verdict %d", int32(verdict))
	}
	if verdict, out := b.run(t, b.flows.programs.Egress, in, flowSkBuff{}); verdict == toStack && len(in) != len(out) {
		t.Errorf("our own packet has another length")
	}
	for _, o := range others {
		if o.flow.State() != o.state {
			t.Errorf("another flow was changed: %+v, was %+v", o.flow.State(), o.state)
		}
	}
}

func TestMutatedPackets(t *testing.T) {
	const rounds = 4000
	b := newBench(t)
	others := b.bystanders(t)
	r := rand.New(rand.NewPCG(1, 2))
	eachFamily(t, func(t *testing.T, ipv6 bool) {
		tcp, udp := b.add(t, b.spec(flow.TCP, ipv6), offsets["far apart"]), b.add(t, b.spec(flow.UDP, ipv6), offset{})
		seeds := b.seeds(t, tcp, udp)
		for i := range rounds {
			if tcp.Gate() != GateStale {
				tcp.SetGate(Gate(i / 100 % int(GateStale)))
			}
			b.tryMutated(t, mutate(r, seeds[r.IntN(len(seeds))]), others)
		}
	})
	b.stillGood(t)
}

// stillGood: after all that a packet of a new flow goes on as ever.
func (b *bench) stillGood(t testing.TB) {
	t.Helper()
	w := b.add(t, b.spec(flow.TCP, false), offset{})
	c := codec{spec: w.Spec(), d: ToBackend, r: w.State().Directions[ToBackend].Rewrite}
	b.check(t, b.flows.programs.Ingress, c, segment{seq: 1, ack: 1, options: usual, payload: 50}.of(t, w.Spec(), ToBackend), onward)
}
