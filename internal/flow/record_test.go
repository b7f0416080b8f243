package flow

import (
	"sync"
	"testing"
	"time"
)

func TestAssign(t *testing.T) {
	r := NewRegistry(Options{})
	a, b := r.Acquire("web", one), r.Acquire("web", two)
	other := openOn(r, b)
	rec := r.Open(web())
	for i, c := range []struct {
		name         string
		do           Assignment
		ok           bool
		flowsA       int64
		flowsB       int64
		want         string
		wantPickedBy Picked
	}{
		{"at its limit", Assignment{two, ByAlgorithm, b, 1}, false, 0, 1, "invalid AddrPort", ""},
		{"the first", Assignment{one, ByAlgorithm, a, 1}, true, 1, 1, one.String(), ByAlgorithm},
		{"the same again, which fills it", Assignment{one, ByAlgorithm, a, 1}, true, 1, 1, one.String(), ByAlgorithm},
		{"the same, chosen by something else", Assignment{one, ByAffinity, a, 1}, true, 1, 1, one.String(), ByAlgorithm},
		{"to one that is full: it stays", Assignment{two, ByRetry, b, 1}, false, 1, 1, one.String(), ByAlgorithm},
		{"to another", Assignment{two, ByRetry, b, 2}, true, 0, 2, two.String(), ByRetry},
		{"and back", Assignment{one, ByRetry, a, 0}, true, 1, 1, one.String(), ByRetry},
		{"to one that is not counted", Assignment{two, ByRetry, nil, 1}, true, 0, 1, two.String(), ByRetry},
		{"the same, not counted", Assignment{two, ByAffinity, nil, 1}, true, 0, 1, two.String(), ByRetry},
	} {
		if ok := rec.Assign(c.do); ok != c.ok {
			t.Errorf("%d %s: %v, want %v", i, c.name, ok, c.ok)
		}
		v := rec.View()
		if a.Flows() != c.flowsA || b.Flows() != c.flowsB || v.Backend.String() != c.want || v.Picked != c.wantPickedBy {
			t.Errorf("%d %s: flows %d and %d, backend %s by %q; want %d and %d, %s by %q",
				i, c.name, a.Flows(), b.Flows(), v.Backend, v.Picked, c.flowsA, c.flowsB, c.want, c.wantPickedBy)
		}
	}
	rec.Finish(ByClient, ReasonClosed)
	if rec.Assign(Assignment{Backend: one, Load: a}) || a.Flows() != 0 {
		t.Error("an ended flow was given a backend")
	}
	if rec.Backend() != two {
		t.Errorf("the ended flow says %s", rec.Backend())
	}
	other.Finish(ByClient, ReasonClosed)
	if b.Flows() != 0 {
		t.Errorf("%d flows left", b.Flows())
	}
}

// Two threads see the same SYN twice: one place is taken, both are told yes.
func TestAssignConcurrently(t *testing.T) {
	for range 200 {
		r := NewRegistry(Options{})
		a := r.Acquire("web", one)
		rec := r.Open(web())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if !rec.Assign(Assignment{Backend: one, Load: a, Limit: 1}) {
					t.Error("refused")
				}
			})
		}
		wg.Wait()
		if a.Flows() != 1 {
			t.Fatalf("%d flows, want 1", a.Flows())
		}
	}
}

// However an assignment and the end of the flow meet, nothing stays counted.
func TestAssignMeetsFinish(t *testing.T) {
	r := NewRegistry(Options{})
	a, b := r.Acquire("web", one), r.Acquire("web", two)
	for range 500 {
		rec := openOn(r, a)
		var wg sync.WaitGroup
		wg.Go(func() { rec.Assign(Assignment{Backend: two, Load: b}) })
		wg.Go(func() { rec.Finish(ByClient, ReasonReset) })
		wg.Wait()
	}
	if a.Flows() != 0 || b.Flows() != 0 {
		t.Errorf("flows left: %d and %d", a.Flows(), b.Flows())
	}
}

func TestDialFailed(t *testing.T) {
	for _, why := range DialFailures {
		r := NewRegistry(Options{})
		l := r.Acquire("web", one)
		openOn(r, l).DialFailed(why)
		want := uint64(1)
		if why.Local() {
			want = 0
		}
		if l.Failures() != want {
			t.Errorf("%s: %d failures of the backend, want %d", why, l.Failures(), want)
		}
		if n := r.DialFailures()[DialFailureKey{"web", one, why}]; n != 1 {
			t.Errorf("%s: counted %d times", why, n)
		}
	}
}

func TestCountersAcrossPaths(t *testing.T) {
	r := NewRegistry(Options{})
	s := web()
	s.Counters = Counters{BytesToBackend: 1000, PacketsToBackend: 10, LastSeen: start}
	rec := r.Open(s)
	user, kernel := pathOf(5, 7), pathOf(0, 0)
	rec.Attach(PathUserspace, user)
	rec.Attach(PathBPF, kernel)
	user.toBackend.Store(99) // it carries the flow no more
	kernel.toBackend.Store(20)
	kernel.toClient.Store(30)
	check := func(when string) {
		t.Helper()
		v := rec.View()
		if v.BytesToBackend != 1025 || v.BytesToClient != 37 || v.PacketsToBackend != 10 || v.Path != PathBPF || v.LastSeenAt != start {
			t.Errorf("%s: %+v", when, v)
		}
	}
	check("live")
	rec.Finish(ByClient, ReasonClosed)
	kernel.toBackend.Store(99)
	check("ended")
	rec.Attach(PathUserspace, user)
	check("a path attached after the end")
}

func TestCountersAdd(t *testing.T) {
	early, late := start, start.Add(time.Second)
	a := Counters{1, 2, 3, 4, early}
	for _, c := range []struct{ b, want Counters }{
		{Counters{}, a},
		{Counters{10, 20, 30, 40, late}, Counters{11, 22, 33, 44, late}},
		{Counters{LastSeen: early.Add(-1)}, a},
	} {
		if got := a.Add(c.b); got != c.want {
			t.Errorf("%+v", got)
		}
	}
}

func TestEndAsksThePath(t *testing.T) {
	r := NewRegistry(Options{})
	rec := r.Open(web())
	if rec.End(ByBaton, ReasonAdminReset) {
		t.Error("there is no path to ask yet")
	}
	p := pathOf(0, 0)
	p.record = rec
	rec.Attach(PathUserspace, p)
	if !rec.End(ByBaton, ReasonAdminReset) || p.ended.Load() != 1 {
		t.Error("the path was not asked")
	}
	if v := rec.View(); v.State != Ended || v.EndedBy != ByBaton || v.Reason != ReasonAdminReset {
		t.Errorf("%+v", v)
	}
	if rec.End(ByBaton, ReasonAdminReset) || p.ended.Load() != 1 {
		t.Error("it was asked again after the end")
	}
}

func TestFinishOnce(t *testing.T) {
	c := &clock{}
	var told, onEnded int
	r := NewRegistry(Options{Now: c.now, OnEnded: func(*View) { onEnded++ }})
	l := r.Acquire("web", one)
	rec := openOn(r, l)
	rec.WhenEnded(func() { told++ })
	rec.Attach(PathUserspace, pathOf(1, 2))
	c.advance(time.Minute)
	rec.Finish(ByBackend, ReasonReset)
	c.advance(time.Minute)
	rec.Finish(ByClient, ReasonClosed)
	rec.Dialled()
	rec.HalfClosed(ByClient)
	v := rec.View()
	if v.State != Ended || v.EndedBy != ByBackend || v.Reason != ReasonReset || !v.EndedAt.Equal(start.Add(time.Minute)) {
		t.Errorf("%+v", v)
	}
	if told != 1 || onEnded != 1 || l.Flows() != 0 || r.Len() != 0 || len(r.LastEnded()) != 1 {
		t.Errorf("told %d, OnEnded %d, flows %d, live %d, ended %d", told, onEnded, l.Flows(), r.Len(), len(r.LastEnded()))
	}
	if n := r.Stats().Ended; len(n) != 1 || n[EndedKey{"web", TCP, PathUserspace, ByBackend, ReasonReset}] != 1 {
		t.Errorf("%v", n)
	}
}

func TestFinishOnceConcurrently(t *testing.T) {
	var onEnded sync.Map
	r := NewRegistry(Options{OnEnded: func(v *View) {
		if _, twice := onEnded.LoadOrStore(v.ID, true); twice {
			t.Error("OnEnded twice")
		}
	}})
	l := r.Acquire("web", one)
	for range 300 {
		rec := openOn(r, l)
		var wg sync.WaitGroup
		for _, by := range []By{ByClient, ByBackend, ByBaton} {
			wg.Go(func() { rec.Finish(by, ReasonClosed) })
		}
		wg.Wait()
	}
	total := uint64(0)
	for _, n := range r.Stats().Ended {
		total += n
	}
	if total != 300 || l.Flows() != 0 {
		t.Errorf("%d ended, %d flows left", total, l.Flows())
	}
}

func TestStates(t *testing.T) {
	r := NewRegistry(Options{})
	rec := r.Open(web())
	for _, c := range []struct {
		do   func()
		want State
	}{
		{func() {}, Dialing},
		{func() { rec.DialFailed(DialRefused) }, Dialing},
		{rec.Dialled, Established},
		{func() { rec.FirstByte(ByClient) }, Established},
		{func() { rec.NotOffloaded(NotOffloadedNever) }, Established},
		{func() { rec.HalfClosed(ByBackend) }, HalfClosed},
		{func() { rec.Finish(ByClient, ReasonClosed) }, Ended},
	} {
		c.do()
		if got := rec.View().State; got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
