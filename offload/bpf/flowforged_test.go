package bpf

import (
	"fmt"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
)

// remembered is what a forged segment may not change.
func remembered(s FlowState) FlowState {
	for d := range s.Directions {
		p := &s.Directions[d]
		p.Packets, p.At, p.Enter, p.Leave = 0, 0, 0, 0
	}
	return s
}

// TestForgedSegments go on, for the receiver to judge, and change nothing of what is remembered: with the right addresses
// and ports, and numbers that were made up.
func TestForgedSegments(t *testing.T) {
	// The client's numbers go on at 1100, 5100 at the backend; the backend's at 2200, 9200 at the client.
	talk := []sent{
		{ToBackend, segment{seq: 1000, ack: 9000, window: 500, payload: 100, options: usual}},
		{ToClient, segment{seq: 2000, ack: 5100, window: 500, payload: 200, options: usual}},
		{ToBackend, segment{seq: 1100, ack: 9200, window: 500, options: usual}},
	}
	const windows = 0xffff << 7
	for _, tt := range []struct {
		name string
		in   segment
	}{
		{"FIN, no such acknowledgement", segment{flags: "F", seq: 1100, ack: 0x70000007}},
		{"FIN further on, no such acknowledgement", segment{flags: "F", seq: 21_100, ack: 0x70000007}},
		{"data, no such acknowledgement", segment{seq: 1100, ack: 9200 + 1<<31, payload: 10}},
		{"data, acknowledges what is to come", segment{seq: 1100, ack: 9201, payload: 10}},
		{"data, acknowledges what is long gone", segment{seq: 1100, ack: 0xffffffff & (9200 - windows - 1 + 1<<32), payload: 10}},
		{"data beyond any window", segment{seq: 1100 + windows, ack: 9200, payload: 10}},
		{"FIN beyond any window", segment{flags: "F", seq: 1100 + windows, ack: 9200}},
		{"FIN of long ago", segment{flags: "F", seq: 1090, ack: 9200}},
		{"acknowledgement of what is to come", segment{seq: 1100, ack: 9300, window: 9}},
		{"acknowledgement from beyond any window", segment{seq: 1101 + windows, ack: 9200, window: 9}},
		{"data without acknowledgement", segment{flags: "NP", seq: 1100, payload: 10}},
		{"FIN without acknowledgement", segment{flags: "NF", seq: 1100}},
		{"SYN", segment{flags: "SN", seq: 1100}},
		{"SYN with acknowledgement", segment{flags: "S", seq: 1100, ack: 9200, payload: 10}},
		{"reset in the window", segment{flags: "R", seq: 1101, ack: 9200}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			w := b.add(t, b.spec(flow.TCP, false), offset{toBackend: 4000, toClient: 7000})
			for d := range directions {
				r := w.State().Directions[d].Rewrite
				r.Scale = 7
				w.SetRewrite(d, r)
			}
			send := func(p sent) {
				t.Helper()
				if verdict, _ := b.run(t, b.flows.programs.Ingress, p.of(t, w.Spec(), p.d), flowSkBuff{}); verdict != redirected {
					t.Fatalf("%+v: verdict %d", p, int32(verdict))
				}
			}
			for _, p := range talk {
				send(p)
			}
			before := remembered(w.State())
			tt.in.options = late
			send(sent{ToBackend, tt.in})
			after := remembered(w.State())
			if tt.name == "FIN of long ago" { // it could be a repeated segment of old, but for its FIN
				for d := range after.Directions {
					after.Directions[d].TSval, after.Directions[d].Window = before.Directions[d].TSval, before.Directions[d].Window
				}
			}
			if after != before {
				t.Errorf("changed:\n%+v\n%+v", before, after)
			}
			send(sent{ToBackend, segment{seq: 1100, ack: 9200, payload: 30}})
			if got := w.State().Directions[ToBackend]; got.Bytes != 130 || got.End != 1130 {
				t.Errorf("then %+v", got)
			}
		})
	}
}

// TestForgedSegmentsWhileWatched go to the stack. What is far from everything that was seen moves nothing, so the flow can
// still be handed over.
func TestForgedSegmentsWhileWatched(t *testing.T) {
	for i, in := range []segment{
		{flags: "F", seq: 1100, ack: 9200 + 1<<31},
		{flags: "F", seq: 1100 + 1<<31, ack: 9200},
		{seq: 1100 + 1<<31, ack: 9200, payload: 10},
		{seq: 1100, ack: 9200 + 1<<31, window: 3},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			b := newBench(t)
			w := b.add(t, b.spec(flow.TCP, false), offset{})
			w.SetGate(GateWatch)
			b.run(t, b.flows.programs.Ingress, segment{seq: 1000, ack: 9200, payload: 100}.of(t, w.Spec(), ToBackend), flowSkBuff{})
			before := remembered(w.State())
			b.check(t, b.flows.programs.Ingress, codec{}, in.of(t, w.Spec(), ToBackend), stacked)
			if after := remembered(w.State()); after != before {
				t.Errorf("changed:\n%+v\n%+v", before, after)
			}
		})
	}
}
