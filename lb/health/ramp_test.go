package health

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

func TestPercentAt(t *testing.T) {
	for _, c := range []struct {
		elapsed, total time.Duration
		want           uint8
	}{
		{0, 10 * time.Second, 10}, {time.Second, 10 * time.Second, 19}, {5 * time.Second, 10 * time.Second, 55},
		{9999 * time.Millisecond, 10 * time.Second, 99}, {10 * time.Second, 10 * time.Second, 0},
		{11 * time.Second, 10 * time.Second, 0}, {0, 0, 0}, {0, 100 * time.Hour, 10}, {99 * time.Hour, 100 * time.Hour, 99},
	} {
		if got := percentAt(c.elapsed, c.total); got != c.want {
			t.Errorf("%s of %s: %d %%, want %d", c.elapsed, c.total, got, c.want)
		}
	}
}

// What a backend gets in each of the seconds after it has come back.
func TestSlowStart(t *testing.T) {
	slow := func(d time.Duration) lb.HealthCheck { h := every(1, 1); h.SlowStart = d; return h }
	for _, c := range []struct {
		name    string
		balance lb.Algorithm
		health  lb.HealthCheck
		want    string
	}{
		{"least-connections", lb.LeastConnections, slow(0), "[10 19 28 37 46 55 64 73 82 91 0 0]"},
		{"random", lb.Random, slow(0), "[10 19 28 37 46 55 64 73 82 91 0 0]"},
		{"round-robin", lb.RoundRobin, slow(0), "[0 0 0 0 0 0 0 0 0 0 0 0]"},
		{"maglev", lb.Maglev, slow(0), "[0 0 0 0 0 0 0 0 0 0 0 0]"},
		{"round-robin, asked for", lb.RoundRobin, slow(4 * time.Second), "[10 32 55 77 0 0 0 0 0 0 0 0]"},
		{"longer", lb.LeastConnections, slow(time.Minute), "[10 11 13 14 16 17 19 20 22 23 25 26]"},
		{"off", lb.LeastConnections, slow(-1), "[0 0 0 0 0 0 0 0 0 0 0 0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, w *world) {
				svc := web(3)
				svc.Balance = c.balance
				w.answers(func(at target) outcome {
					if at.address == addr(1) {
						return refused
					}
					return passed
				})
				w.put(svc, c.health)
				pass(2 * time.Second)
				wantPicture(t, w, "web", "+-+", "at first")
				w.answers(func(target) outcome { return passed })
				for w.told("web", 1).Unhealthy {
					pass(time.Millisecond)
				}
				pass(10 * time.Millisecond)
				var got []uint8
				for range 12 {
					got = append(got, w.told("web", 1).Ramp)
					pass(time.Second)
				}
				if fmt.Sprint(got) != c.want {
					t.Errorf("%v, want %s", got, c.want)
				}
			})
		})
	}
}

// All that come back are taken a step further together: one snapshot for all.
func TestRampsStepTogether(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.answers(func(target) outcome { return refused })
		for i := range 10 {
			svc := named(fmt.Sprint("svc-", i), byte(i+1), 50)
			svc.Balance = lb.LeastConnections
			w.put(svc, every(1, 1))
		}
		pass(2 * time.Second)
		w.answers(func(target) outcome { return passed })
		pass(1500 * time.Millisecond)
		if st := w.Stats(); st.Ramping != 500 {
			t.Errorf("%+v", st)
		}
		before := w.store.Snapshot().Revision
		pass(5 * time.Second)
		if n := w.store.Snapshot().Revision - before; n > 20 { // the store may begin before it has heard of all
			t.Errorf("%d snapshots in 5 s of ramping 500 backends", n)
		}
		pass(7 * time.Second)
		if st := w.Stats(); st.Ramping != 0 {
			t.Errorf("%+v", st)
		}
		before = w.store.Snapshot().Revision
		pass(time.Minute)
		if w.store.Snapshot().Revision != before {
			t.Error("it goes on publishing")
		}
	})
}

// A backend that goes down again while it ramps begins anew.
func TestRampIsCutShort(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		svc := web(3)
		svc.Balance = lb.LeastConnections
		w.put(svc, lb.HealthCheck{})
		w.connect("web", 0, 5, flow.DialTimeout)
		pass(1100 * time.Millisecond)
		w.connect("web", 0, 1, "")
		pass(5 * time.Second)
		if got := w.told("web", 0); got.Ramp < 40 || got.Ramp > 50 {
			t.Errorf("4 s after it has answered: %+v", got)
		}
		w.connect("web", 0, 5, flow.DialTimeout)
		pass(soon)
		if got := w.told("web", 0); !got.Unhealthy || got.Ramp != 0 {
			t.Errorf("ejected again: %+v", got)
		}
		pass(time.Second)
		if got := w.told("web", 0); got.Unhealthy || got.Ramp != trialPercent {
			t.Errorf("back again: %+v", got)
		}
		w.connect("web", 0, 1, "")
		pass(2 * time.Second)
		if got := w.told("web", 0); got.Ramp < 10 || got.Ramp > 20 {
			t.Errorf("it has answered: %+v", got)
		}
		// A reload that switches it off ends it with the next step.
		w.put(svc, lb.HealthCheck{SlowStart: -1})
		pass(time.Second + soon)
		if got := w.told("web", 0); got.Ramp != 0 {
			t.Errorf("switched off: %+v", got)
		}
	})
}

// Undrained backends, and new ones of a service that is there, come back too, if
// there are others beside them.
func TestReturningBackendsRamp(t *testing.T) {
	for _, health := range []lb.HealthCheck{{}, every(1, 1)} {
		bubble(t, Options{}, func(t *testing.T, w *world) {
			svc := web(3)
			svc.Balance = lb.LeastConnections
			w.put(svc, health)
			pass(soon)
			wantPicture(t, w, "web", "+++", "a new service")
			drain := func(on bool, t store.Target) {
				f := w.store.Undrain
				if on {
					f = w.store.Drain
				}
				if err := f(t); err != nil {
					w.t.Fatal(err)
				}
				w.programmed()
				pass(soon)
			}
			drain(true, store.Target{Backend: addr(1)})
			wantPicture(t, w, "web", "+++", "drained")
			drain(false, store.Target{Backend: addr(1)})
			wantPicture(t, w, "web", "+~+", "undrained")
			pass(10 * time.Second)
			wantPicture(t, w, "web", "+++", "later")

			grown := web(5)
			grown.Balance = lb.LeastConnections
			grown.Backends[4].State = lb.StateDown
			w.put(grown, health)
			pass(soon)
			wantPicture(t, w, "web", "+++~+", "one more, and one that is down")
			grown.Backends = slices.Clone(grown.Backends)
			grown.Backends[4].State = lb.StateReady
			w.put(grown, health)
			pass(soon)
			wantPicture(t, w, "web", "+++~~", "that one too")
			pass(12 * time.Second)
			wantPicture(t, w, "web", "+++++", "later")

			drain(true, store.Target{Service: "web"})
			drain(false, store.Target{Service: "web"})
			wantPicture(t, w, "web", "+++++", "all of them came back")
			pass(12 * time.Second)
			if n := w.known(); health.Probe == lb.NoProbe && n != 0 {
				t.Errorf("%d backends known", n)
			}
		})
	}
}

// The only backend of a service cannot get less than everything.
func TestOnlyBackendDoesNotRamp(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		svc := web(1)
		svc.Balance = lb.LeastConnections
		w.answers(func(target) outcome { return refused })
		w.put(svc, every(1, 1))
		pass(time.Second)
		w.answers(func(target) outcome { return passed })
		pass(1200 * time.Millisecond)
		wantPicture(t, w, "web", "+", "back")
	})
}
