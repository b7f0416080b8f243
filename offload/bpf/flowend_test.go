package bpf

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// sent is a packet of a flow that is forwarded.
type sent struct {
	d Direction
	segment
}

// told reads what was told of a flow so far.
func (b *bench) events(t testing.TB, w *Flow) (all []Event) {
	t.Helper()
	b.flows.events.SetDeadline(time.Now())
	defer b.flows.events.SetDeadline(time.Time{})
	for {
		e, err := b.flows.ReadEvent()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Flow == w {
			e.Flow, e.At = nil, 0
			all = append(all, e)
		}
	}
}

func TestEnd(t *testing.T) {
	// The client's numbers go on at 1100, 5100 at the backend; the backend's at 2200, 9200 at the client.
	var (
		o         = offset{toBackend: 4000, toClient: 7000}
		hello     = sent{ToBackend, segment{seq: 1000, ack: 9000, payload: 100}}
		answer    = sent{ToClient, segment{seq: 2000, ack: 5100, payload: 200}}
		thanks    = sent{ToBackend, segment{seq: 1100, ack: 9200}}
		talk      = []sent{hello, answer, thanks}
		clientFIN = sent{ToBackend, segment{flags: "F", seq: 1100, ack: 9200}}
		itsACK    = sent{ToClient, segment{seq: 2200, ack: 5101}}
		serverFIN = sent{ToClient, segment{flags: "F", seq: 2200, ack: 5101}}
		lastACK   = sent{ToBackend, segment{seq: 1101, ack: 9201}}
		first     = []Event{{What: EventFirst, Direction: ToBackend}, {What: EventFirst, Direction: ToClient}}
	)
	reset := func(d Direction, seq uint32) sent { return sent{d, segment{flags: "R", seq: seq}} }
	with := func(more ...sent) []sent { return append(append([]sent(nil), talk...), more...) }
	for _, tt := range []struct {
		name   string
		sent   []sent
		events []Event // beyond the first two
		over   bool
	}{
		{"goes on", talk, nil, false},
		{"both close", with(clientFIN, itsACK, serverFIN, lastACK),
			[]Event{{What: EventFIN, Direction: ToBackend}, {What: EventOver, Direction: ToClient}}, true},
		{"both close, nothing in between", with(clientFIN, serverFIN, lastACK),
			[]Event{{What: EventFIN, Direction: ToBackend}, {What: EventOver, Direction: ToClient}}, true},
		{"both close at once", with(clientFIN, sent{ToClient, segment{flags: "F", seq: 2200, ack: 5100}}, lastACK, sent{ToClient, segment{seq: 2201, ack: 5101}}),
			[]Event{{What: EventFIN, Direction: ToClient}, {What: EventOver, Direction: ToBackend}}, true},
		{"FINs and acknowledgements repeated", with(clientFIN, clientFIN, itsACK, itsACK, serverFIN, serverFIN, lastACK, lastACK),
			[]Event{{What: EventFIN, Direction: ToBackend}, {What: EventOver, Direction: ToClient}}, true},
		{"FIN that is not acknowledged", with(clientFIN, answer), nil, false},
		{"half closed", with(clientFIN, itsACK), []Event{{What: EventFIN, Direction: ToBackend}}, false},
		{"FIN from somewhere else", with(sent{ToBackend, segment{flags: "F", seq: 0x90000000, ack: 9200}}, itsACK), nil, false},
		{"FIN from somewhere else, then the right one", with(sent{ToBackend, segment{flags: "F", seq: 1105, ack: 9200}}, clientFIN, itsACK),
			[]Event{{What: EventFIN, Direction: ToBackend}}, false},
		{"client resets", with(reset(ToBackend, 1100)), []Event{{What: EventReset, Direction: ToBackend}}, true},
		{"backend resets", with(reset(ToClient, 2200)), []Event{{What: EventReset, Direction: ToClient}}, true},
		{"client resets with data on their way", with(sent{ToBackend, segment{seq: 1100, ack: 9200, payload: 50}}, reset(ToBackend, 1150)),
			[]Event{{What: EventReset, Direction: ToBackend}}, true},
		{"client resets, data were lost", with(sent{ToBackend, segment{seq: 1100, ack: 9200, payload: 50}}, reset(ToBackend, 1100)),
			[]Event{{What: EventReset, Direction: ToBackend}}, true},
		{"reset in the window only", with(reset(ToBackend, 1101)), nil, false},
		{"reset with the other side's number", with(reset(ToBackend, 5100)), nil, false},
		{"reset repeated", with(reset(ToBackend, 1100), reset(ToBackend, 1100)), []Event{{What: EventReset, Direction: ToBackend}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			w := b.add(t, b.spec(flow.TCP, false), o)
			for _, p := range tt.sent {
				if verdict, _ := b.run(t, b.flows.programs.Ingress, p.of(t, w.Spec(), p.d), flowSkBuff{}); verdict != redirected {
					t.Fatalf("%+v: verdict %d", p, int32(verdict))
				}
			}
			events, want := b.events(t, w), append(first[:2:2], tt.events...)
			if len(events) != len(want) {
				t.Fatalf("told %v, want %v", events, want)
			}
			for i := range want {
				if events[i] != want[i] {
					t.Errorf("told %v, want %v", events, want)
				}
			}
			if s := w.State(); s.Over() != tt.over {
				t.Errorf("over: %v, in %+v", s.Over(), s)
			}
			b.checkNewSYN(t, w, tt.over)
		})
	}
}

// checkNewSYN sends one: it begins a new flow if this one is over, and the packets after it go to the stack too.
func (b *bench) checkNewSYN(t *testing.T, w *Flow, over bool) {
	t.Helper()
	for _, s := range []segment{{flags: "SN", seq: 77, options: ofSYN}, {seq: 78, ack: 5}} {
		verdict, _ := b.run(t, b.flows.programs.Ingress, s.of(t, w.Spec(), ToBackend), flowSkBuff{})
		if want := map[bool]uint32{true: toStack, false: redirected}[over]; verdict != want {
			t.Errorf("SYN: verdict %d, want %d", int32(verdict), int32(want))
		}
	}
	if got := w.Gate() == GateStale; got != over {
		t.Errorf("gate %s", w.Gate())
	}
	if over {
		if w.SetGate(GateForward) {
			t.Error("a stale flow is forwarded again")
		}
		if e := b.events(t, w); len(e) != 1 || e[0].What != EventStale {
			t.Errorf("told %v", e)
		}
	}
}

// TestBytesCountOnce: what is repeated or comes out of order, and what nobody can have sent.
func TestBytesCountOnce(t *testing.T) {
	b := newBench(t)
	data := func(seq uint32, n int) segment { return segment{seq: seq, ack: 1, payload: n} }
	for _, tt := range []struct {
		name  string
		scale uint8 // of the receiver
		sent  []segment
		bytes uint64
	}{
		{"in order", 0, []segment{data(0, 10), data(10, 20)}, 30},
		{"repeated", 0, []segment{data(0, 10), data(0, 10), data(10, 5), data(0, 10)}, 15},
		{"repeated with more", 0, []segment{data(0, 10), data(0, 30)}, 30},
		{"out of order", 0, []segment{data(0, 10), data(30, 10), data(20, 10), data(10, 10)}, 40},
		{"across the wrap", 0, []segment{data(0xfffffff0, 16), data(0, 20)}, 36},
		{"FIN is no payload", 0, []segment{data(0, 10), {flags: "F", seq: 10, ack: 1, payload: 5}, {flags: "F", seq: 15, ack: 1}}, 15},
		{"beyond any window", 0, []segment{data(0, 10), data(0x60000000, 10), data(10, 10)}, 20},
		{"beyond the window", 1, []segment{data(0, 10), data(200000, 10), data(10, 10)}, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := b.add(t, b.spec(flow.TCP, false), offset{})
			w.SetRewrite(ToClient, Rewrite{Scale: tt.scale})
			acknowledged := segment{seq: 1, ack: tt.sent[0].seq}
			b.run(t, b.flows.programs.Ingress, acknowledged.of(t, w.Spec(), ToClient), flowSkBuff{})
			for _, s := range tt.sent {
				b.run(t, b.flows.programs.Ingress, s.of(t, w.Spec(), ToBackend), flowSkBuff{})
			}
			if got := w.State().Directions[ToBackend]; got.Bytes != tt.bytes || got.Packets != uint64(len(tt.sent)) {
				t.Errorf("%d bytes in %d packets, want %d in %d", got.Bytes, got.Packets, tt.bytes, len(tt.sent))
			}
		})
	}
}

// TestFirstSegmentsOvertaken: it is known where a flow stands when it is handed over, so what comes first need not be first.
func TestFirstSegmentsOvertaken(t *testing.T) {
	b := newBench(t)
	b.eachWay(t, flow.TCP, false, func(t *testing.T, w *Flow, d Direction) {
		w.SetNext(d, 100, 1)
		w.SetNext(d.Other(), 1, 100)
		for _, in := range []segment{{seq: 130, ack: 1, payload: 40}, {seq: 100, ack: 1, payload: 30}, {flags: "F", seq: 170, ack: 1}} {
			b.run(t, b.flows.programs.Ingress, in.of(t, w.Spec(), d), flowSkBuff{})
		}
		if got := w.State().Directions[d]; got.Bytes != 70 || got.End != 171 || !got.FIN || got.FINEnd != 171 {
			t.Errorf("%+v", got)
		}
	})
}

// TestSuperPackets: what will be cut into segments counts as those, and must fit as those.
func TestSuperPackets(t *testing.T) {
	b := newBench(t)
	for _, tt := range []struct {
		size    uint32 // of a segment's payload
		verdict uint32
		packets uint64
	}{{1448, redirected, 3}, {1449, redirected, 0}} {
		w := b.add(t, b.spec(flow.TCP, false), offset{})
		in := segment{seq: 1, ack: 1, options: usual, payload: 2900}.of(t, w.Spec(), ToBackend)
		before := b.counts(t)
		verdict, _ := b.run(t, b.flows.programs.Ingress, in, flowSkBuff{GsoSize: tt.size, GsoSegs: 3})
		if got := w.State().Directions[ToBackend].Packets; verdict != tt.verdict || got != tt.packets {
			t.Errorf("segments of %d: verdict %d, %d packets", tt.size, int32(verdict), got)
		}
		if c := b.changes(t, before); c[FlowsForwarded] != tt.packets || c[FlowsTooBig] != map[bool]uint64{true: 1}[tt.packets == 0] {
			t.Errorf("counted %v", c)
		}
	}
}
