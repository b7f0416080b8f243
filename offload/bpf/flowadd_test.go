package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

func specFor(n int) FlowSpec {
	return FlowSpec{
		Proto:    flow.TCP,
		Client:   netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 1000),
		Frontend: netip.MustParseAddrPort("10.96.0.1:80"),
		Local:    netip.AddrPortFrom(netip.MustParseAddr("10.1.0.1"), uint16(10000+n)),
		Backend:  netip.MustParseAddrPort("10.1.0.2:8080"),
	}
}

func elements(t testing.TB, f *Flows) (n int) {
	t.Helper()
	must(t, f.eachElement(anyElement, func(flowTuple, flowElement6) bool { n++; return true }))
	return n
}

func TestAdd(t *testing.T) {
	testnet.RequireRoot(t)
	f := newFlows(t, testnet.New(t).Host("balancer"), FlowsOptions{Capacity: 3})
	first := specFor(1)
	first.NoSACK, first.Note = true, []byte("note")
	w, err := f.Add(first, GateDrain)
	if err != nil {
		t.Fatal(err)
	}
	got := w.Spec()
	if got.Client != first.Client || !got.NoSACK || !strings.HasPrefix(string(got.Note), "note\x00") || w.Gate() != GateDrain {
		t.Errorf("added %+v at gate %s", got, w.Gate())
	}
	sameClient, sameLocal, mixed := specFor(2), specFor(2), specFor(2)
	sameClient.Client = first.Client
	sameLocal.Local = first.Local
	mixed.Backend = netip.MustParseAddrPort("[fd00::1]:8080")
	sctp, long := specFor(2), specFor(2)
	sctp.Proto = flow.SCTP
	long.Note = make([]byte, NoteSize+1)
	for name, tt := range map[string]struct {
		spec FlowSpec
		want error
	}{
		"client's tuple taken":  {sameClient, ErrTaken},
		"backend's tuple taken": {sameLocal, ErrTaken},
		"two families":          {mixed, ErrFamily},
		"protocol":              {sctp, nil},
		"note too long":         {long, nil},
		"no addresses":          {FlowSpec{Proto: flow.TCP}, nil},
	} {
		if _, err := f.Add(tt.spec, GateWatch); err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if n := elements(t, f); n != 2 || len(f.All()) != 1 {
		t.Errorf("%d elements of %d flows", n, len(f.All()))
	}
	for i := 2; i <= 3; i++ {
		if _, err := f.Add(specFor(i), GateWatch); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Add(specFor(4), GateWatch); !errors.Is(err, ErrFull) {
		t.Errorf("one more than there is room for: %v", err)
	}
	slot, generation := w.slot, w.generation
	for range 2 {
		if err := w.Delete(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.SetNote(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("note of a deleted flow: %v", err)
	}
	again, err := f.Add(first, GateWatch)
	if err != nil {
		t.Fatal(err)
	}
	if again.slot != slot || again.generation == generation || again.generation%2 != 1 {
		t.Errorf("slot %d generation %d after %d, %d", again.slot, again.generation, slot, generation)
	}
	for _, w := range f.All() {
		if err := w.Delete(); err != nil {
			t.Error(err)
		}
	}
	if n := elements(t, f); n != 0 {
		t.Errorf("%d elements are left", n)
	}
}

// TestAdoptFlows: who comes next finds the flows, and nothing of what was half done.
func TestAdoptFlows(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("balancer")
	_, dir := mountForTest(t, h)
	o := FlowsOptions{Dir: dir, Capacity: 8}
	f := newFlows(t, h, o)
	want := make(map[netip.AddrPort]string)
	for i := range 4 {
		s := specFor(i)
		s.Note, s.NoTimestamps = []byte(fmt.Sprint("flow ", i)), i%2 == 0
		w, err := f.Add(s, GateForward)
		if err != nil {
			t.Fatal(err)
		}
		want[s.Client] = fmt.Sprint("flow ", i)
		switch i {
		case 0: // died while it added
			must(t, f.forgetElement(s.tuple(ToClient)))
			delete(want, s.Client)
		case 1: // died while it deleted
			must(t, f.forgetElement(s.tuple(ToBackend)))
			delete(want, s.Client)
		case 2: // the other's element is of an earlier flow
			e := s.element(ToClient, w.slot, w.generation-2)
			must(t, f.forgetElement(s.tuple(ToClient)))
			must(t, f.addElement(s.tuple(ToClient), e))
			delete(want, s.Client)
		}
		w.SetRewrite(ToClient, Rewrite{Seq: 7, Shift: -3, Scale: 5})
	}
	must(t, f.Close())

	o.Capacity = 1000
	f = newFlows(t, h, o)
	all := f.All()
	if len(all) != len(want) || elements(t, f) != 2*len(want) {
		t.Fatalf("%d flows with %d elements, want %d", len(all), elements(t, f), len(want))
	}
	for _, w := range all {
		s := w.Spec()
		if note := strings.TrimRight(string(s.Note), "\x00"); note != want[s.Client] || s.Proto != flow.TCP || s.NoTimestamps {
			t.Errorf("adopted %+v", s)
		}
		state := w.State()
		if r := state.Directions[ToClient].Rewrite; r != (Rewrite{Seq: 7, Shift: -3, Scale: 5}) || state.Gate != GateForward {
			t.Errorf("adopted %+v", state)
		}
	}
	for i := range 7 { // as many as there were when the maps were made, one of which is there
		if _, err := f.Add(specFor(10+i), GateWatch); err != nil {
			t.Fatalf("flow %d: %v", i, err)
		}
	}
	if _, err := f.Add(specFor(20), GateWatch); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	var notes int
	var k uint32
	var v flowNote
	for it := f.maps.FlowNotes.Iterate(); it.Next(&k, &v); {
		notes++
	}
	if notes != 8 {
		t.Errorf("%d notes, want 8", notes)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestGrace(t *testing.T) {
	testnet.RequireRoot(t)
	must(t, Grace())
	m, err := graceMaps() // what is used where there is no membarrier
	must(t, err)
	must(t, m.outer.Update(uint32(0), m.inner, ebpf.UpdateAny))
}

func TestReadEventEnds(t *testing.T) {
	testnet.RequireRoot(t)
	f := newFlows(t, testnet.New(t).Host("balancer"), FlowsOptions{Capacity: 1})
	done := make(chan error, 1)
	go func() { _, err := f.ReadEvent(); done <- err }()
	must(t, f.Close())
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkAdd is what it costs to put a flow in and take it out again.
func BenchmarkAdd(b *testing.B) {
	testnet.RequireRoot(b)
	f := newFlows(b, testnet.New(b).Host("balancer"), FlowsOptions{})
	s := specFor(1)
	for b.Loop() {
		w, err := f.Add(s, GateWatch)
		must(b, err)
		must(b, w.Delete())
	}
}

// TestAfterClose: who has not heard of it yet does no harm.
func TestAfterClose(t *testing.T) {
	testnet.RequireRoot(t)
	f := newFlows(t, testnet.New(t).Host("balancer"), FlowsOptions{Capacity: 2})
	w, err := f.Add(specFor(1), GateForward)
	must(t, err)
	must(t, f.Close())
	runtime.GC()
	w.SetRewrite(ToBackend, Rewrite{Seq: 1})
	if !w.SetGate(GateFreeze) || w.Gate() != GateFreeze || w.State().Directions[ToBackend].Rewrite.Seq != 1 {
		t.Errorf("%+v", w.State())
	}
	if _, err := f.Add(specFor(2), GateWatch); !errors.Is(err, ErrClosed) {
		t.Errorf("add: %v", err)
	}
	if err := w.SetNote(nil); err == nil {
		t.Error("a note was kept")
	}
	_ = w.Spec()
	_ = w.Delete()
	_, _ = f.Counts()
}

// A full table costs those who ask for room little: whoever asks may be an event loop,
// and a grace period is long.
func TestAddToFullTable(t *testing.T) {
	testnet.RequireRoot(t)
	const capacity, batch = 2 * spentShare, 2
	f := newFlows(t, testnet.New(t).Host("balancer"), FlowsOptions{Capacity: capacity})
	var all []*Flow
	for i := range capacity {
		w, err := f.Add(specFor(i), GateWatch)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	for i := range batch {
		if w, err := f.Add(specFor(capacity), GateWatch); !errors.Is(err, ErrFull) {
			t.Fatalf("with %d slots to wait for: %v, %v", i, w, err)
		}
		if err := all[i].Delete(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range batch {
		if _, err := f.Add(specFor(capacity+i), GateWatch); err != nil {
			t.Errorf("after one grace period for %d slots: %v", batch, err)
		}
	}
}
