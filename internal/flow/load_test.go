package flow

import (
	"sync"
	"testing"
)

func TestReserve(t *testing.T) {
	for _, c := range []struct{ open, limit, want int }{
		{0, 0, 1}, {100, 0, 101}, {0, 1, 1}, {1, 1, 1}, {4, 5, 5}, {5, 5, 5}, {6, 5, 6},
	} {
		l := &Load{}
		l.flows.Store(int64(c.open))
		ok := l.reserve(c.limit)
		if ok != (c.want > c.open) || l.Flows() != int64(c.want) {
			t.Errorf("%d open, limit %d: %v, now %d; want %d", c.open, c.limit, ok, l.Flows(), c.want)
		}
	}
}

// The limit is not passed even for a moment, and no place is left empty.
func TestReserveConcurrently(t *testing.T) {
	const limit = 10
	l := &Load{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				if l.reserve(limit) {
					if n := l.Flows(); n > limit || n < 1 {
						t.Errorf("%d flows", n)
					}
					l.flows.Add(-1)
				} else {
					t.Error("refused with four flows at most")
				}
			}
		})
	}
	wg.Wait()
	for range limit {
		l.reserve(limit)
	}
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				if l.reserve(limit) || l.Flows() > limit {
					t.Error("passed the limit")
				}
			}
		})
	}
	wg.Wait()
}

func TestLoadIsShared(t *testing.T) {
	r := NewRegistry(Options{})
	a := r.Acquire("web", one)
	if b := r.Acquire("web", one); b != a {
		t.Error("the same backend has two loads")
	}
	if b := r.Acquire("web", two); b == a {
		t.Error("two addresses share a load")
	}
	if b := r.Acquire("api", one); b == a {
		t.Error("two services share a load")
	}
}

func TestLoadIsForgotten(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*Registry, *Load)
		want bool // the registry still knows it
	}{
		{"held", func(*Registry, *Load) {}, true},
		{"let go", func(r *Registry, l *Load) { r.Release(l) }, false},
		{"held twice, let go once", func(r *Registry, l *Load) { r.Acquire("web", one); r.Release(l) }, true},
		{"let go with a flow", func(r *Registry, l *Load) { openOn(r, l); r.Release(l) }, true},
		{"let go, then its flow ends", func(r *Registry, l *Load) {
			rec := openOn(r, l)
			r.Release(l)
			rec.Finish(ByClient, ReasonClosed)
		}, false},
		{"its flow ends, then let go", func(r *Registry, l *Load) {
			openOn(r, l).Finish(ByClient, ReasonClosed)
			r.Release(l)
		}, false},
		{"let go, then a flow opens from an older snapshot", func(r *Registry, l *Load) {
			r.Release(l)
			openOn(r, l)
		}, true},
		{"that flow ends", func(r *Registry, l *Load) {
			r.Release(l)
			openOn(r, l).Finish(ByClient, ReasonClosed)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewRegistry(Options{})
			l := r.Acquire("web", one)
			c.do(r, l)
			if _, ok := r.loads.m[l.key]; ok != c.want {
				t.Errorf("known: %v, want %v", ok, c.want)
			}
			if again := r.Acquire("web", one); (again == l) != c.want {
				t.Errorf("the same load again: %v, want %v", again == l, c.want)
			}
		})
	}
}

func openOn(r *Registry, l *Load) *Record {
	rec := r.Open(web())
	rec.Assign(Assignment{Backend: one, Load: l})
	return rec
}

// A backend that goes and comes back has its flows and its failures.
func TestLoadSurvives(t *testing.T) {
	r := NewRegistry(Options{})
	l := r.Acquire("web", one)
	rec := openOn(r, l)
	rec.DialFailed(DialRefused)
	r.Release(l)
	back := r.Acquire("web", one)
	if back.Flows() != 1 || back.Failures() != 1 {
		t.Errorf("%d flows, %d failures; want 1, 1", back.Flows(), back.Failures())
	}
	rec.Finish(ByClient, ReasonClosed)
	if back.Flows() != 0 {
		t.Errorf("%d flows after the end", back.Flows())
	}
}

// Backends come and go while flows open and end: no Load is lost or left.
func TestLoadsConcurrently(t *testing.T) {
	r := NewRegistry(Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				l := r.Acquire("web", one)
				rec := openOn(r, l)
				r.Release(l)
				rec.Finish(ByClient, ReasonClosed)
			}
		})
	}
	wg.Wait()
	if len(r.loads.m) != 0 {
		t.Errorf("%d loads left", len(r.loads.m))
	}
}
