package flow

import (
	"net/netip"
	"sync"
	"testing"
)

func TestOpen(t *testing.T) {
	c := &clock{}
	r := NewRegistry(Options{Now: c.now})
	rec := r.Open(web())
	v := rec.View()
	want := View{
		ID: rec.ID(), Mode: ModeProxy, Protocol: TCP, Service: "web", Frontend: frontend, Client: client,
		State: Dialing, StartedAt: start,
	}
	if v != want {
		t.Errorf("%+v\nwant %+v", v, want)
	}
	if rec.Key() != NewKey(TCP, client, frontend) || rec.Service() != "web" || rec.StartedAt() != start || rec.Backend().IsValid() {
		t.Error("the record's own answers differ")
	}
	if got, ok := r.Get(rec.ID()); !ok || got != rec {
		t.Error("Get does not find it")
	}
	if _, ok := r.Get(rec.ID() + 1); ok {
		t.Error("Get finds another")
	}
}

// An adopted flow keeps its name, its age and its counters.
func TestOpenAdopted(t *testing.T) {
	r := NewRegistry(Options{})
	s := web()
	s.ID, s.Mode, s.StartedAt, s.Counters = 77, ModeSteer, start, Counters{BytesToBackend: 5}
	rec := r.Open(s)
	if v := rec.View(); v.ID != 77 || v.Mode != ModeSteer || v.StartedAt != start || v.BytesToBackend != 5 {
		t.Errorf("%+v", v)
	}
	if again := r.Open(s); again.ID() == 77 || again.ID() == 0 || r.Len() != 2 {
		t.Errorf("a second flow of that name is called %s; %d live", again.ID(), r.Len())
	}
}

func TestRecords(t *testing.T) {
	r := NewRegistry(Options{})
	open := map[*Record]bool{}
	for range 500 {
		open[r.Open(web())] = true
	}
	gone := 0
	for rec := range open {
		if gone++; gone > 200 {
			break
		}
		rec.Finish(ByClient, ReasonClosed)
		delete(open, rec)
	}
	if r.Len() != 300 || len(r.Records()) != 300 {
		t.Errorf("%d live, %d listed", r.Len(), len(r.Records()))
	}
	for _, rec := range r.Records() {
		if !open[rec] {
			t.Error("a record that is not open is listed")
		}
	}
}

func TestLastEnded(t *testing.T) {
	for _, c := range []struct{ kept, ended, want int }{
		{0, 3, 3}, {3, 0, 0}, {3, 2, 2}, {3, 3, 3}, {3, 4, 3}, {3, 10, 3}, {1, 5, 1}, {0, 2000, 1024}, {-1, 5, 0},
	} {
		r := NewRegistry(Options{EndedKept: c.kept})
		var ids []ID
		for range c.ended {
			rec := r.Open(web())
			ids = append(ids, rec.ID())
			rec.Finish(ByClient, ReasonClosed)
		}
		got := r.LastEnded()
		if len(got) != c.want {
			t.Errorf("keep %d of %d: %d", c.kept, c.ended, len(got))
			continue
		}
		for i, v := range got {
			if v.ID != ids[len(ids)-1-i] {
				t.Errorf("keep %d of %d: number %d is not the newest but %d", c.kept, c.ended, i, i)
				break
			}
		}
	}
}

// A flow that is another process's from now on is listed no more, and has not ended.
func TestLeave(t *testing.T) {
	r := NewRegistry(Options{OnEnded: func(v *View) { t.Errorf("%+v has ended", v) }})
	events := r.Subscribe(nil, 10)
	defer events.Close()
	s := web()
	s.Load = r.Acquire("web", frontend)
	rec := r.Open(s)
	rec.Attach(PathBPF, pathOf(3, 4))
	told := 0
	rec.WhenEnded(func() { told++ })
	for len(events.C) > 0 {
		<-events.C
	}
	rec.Leave()
	rec.Leave()
	rec.Finish(ByClient, ReasonClosed)
	st := r.Stats()
	if r.Len() != 0 || len(r.LastEnded()) != 0 || len(st.Ended) != 0 || len(st.Active) != 0 || len(events.C) != 0 {
		t.Errorf("%d live, %d ended, %+v, %d events", r.Len(), len(r.LastEnded()), st, len(events.C))
	}
	if st.Bytes[BytesKey{"web", ToClient, PathBPF}] != 4 || s.Load.Flows() != 0 || told != 1 {
		t.Errorf("%v, %d open flows, told %d times", st.Bytes, s.Load.Flows(), told)
	}
}

func TestOnEndedSeesTheFinalCounters(t *testing.T) {
	var got View
	r := NewRegistry(Options{OnEnded: func(v *View) { got = *v }})
	rec := r.Open(web())
	p := pathOf(3, 4)
	rec.Attach(PathUserspace, p)
	p.toClient.Store(5)
	rec.Finish(ByBackend, ReasonClosed)
	if got.BytesToBackend != 3 || got.BytesToClient != 5 || got.State != Ended || got.Reason != ReasonClosed {
		t.Errorf("%+v", got)
	}
}

func TestDrops(t *testing.T) {
	r := NewRegistry(Options{})
	r.Drop(DropLimit)
	r.Drop(DropLimit)
	r.Drop(DropEvents)
	counts := r.DropCounts()
	if len(counts) != len(Drops) {
		t.Errorf("%d reasons, want all %d", len(counts), len(Drops))
	}
	for d, n := range counts {
		want := map[Drop]uint64{DropLimit: 2, DropEvents: 1}[d]
		if n != want {
			t.Errorf("%s: %d, want %d", d, n, want)
		}
	}
}

func TestForgetDialFailures(t *testing.T) {
	r := NewRegistry(Options{})
	openOn(r, r.Acquire("web", one)).DialFailed(DialRefused)
	rec := r.Open(web())
	rec.Assign(Assignment{Backend: two, Load: r.Acquire("web", two)})
	rec.DialFailed(DialTimeout)
	r.ForgetDialFailures(func(service string, b netip.AddrPort) bool { return service == "web" && b == two })
	if got := r.DialFailures(); len(got) != 1 || got[DialFailureKey{"web", two, DialTimeout}] != 1 {
		t.Errorf("%v", got)
	}
}

func TestRegistryConcurrently(t *testing.T) {
	r := NewRegistry(Options{EndedKept: 16})
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, rec := range r.Records() {
				rec.View()
			}
			r.LastEnded()
			r.Len()
		}
	})
	for range 3 {
		writers.Go(func() {
			for range 300 {
				rec := r.Open(web())
				rec.Attach(PathUserspace, pathOf(1, 1))
				rec.Dialled()
				if got, ok := r.Get(rec.ID()); !ok || got != rec {
					t.Error("a live flow is not found")
				}
				rec.Finish(ByClient, ReasonClosed)
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	if r.Len() != 0 {
		t.Errorf("%d left", r.Len())
	}
}

func BenchmarkFlow(b *testing.B) {
	r := NewRegistry(Options{})
	l := r.Acquire("web", one)
	p := pathOf(1, 1)
	b.ReportAllocs()
	for b.Loop() {
		rec := r.Open(web())
		rec.Assign(Assignment{Backend: one, Picked: ByAlgorithm, Load: l})
		rec.Attach(PathUserspace, p)
		rec.Dialled()
		rec.Finish(ByClient, ReasonClosed)
	}
}

func BenchmarkStats(b *testing.B) {
	r := NewRegistry(Options{})
	for range 10_000 {
		r.Open(web()).Attach(PathUserspace, pathOf(1, 1))
	}
	for b.Loop() {
		r.Stats()
	}
}
