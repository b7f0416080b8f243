package health

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// connect says how n attempts to reach a backend went: "" = well.
func (w *world) connect(service string, i, n int, failure flow.DialFailure) {
	w.t.Helper()
	svc, ok := w.store.Snapshot().Service(service)
	if !ok {
		w.t.Fatalf("no service %q", service)
	}
	b := svc.Pool[i]
	for range n {
		rec := w.registry.Open(flow.Spec{Proto: flow.TCP, Service: service, Client: addr(99), Frontend: addr(98)})
		if !rec.Assign(flow.Assignment{Backend: b.Address, Load: b.Load}) {
			w.t.Fatal("assign refused")
		}
		if failure == "" {
			rec.Dialled()
		} else {
			rec.DialFailed(failure)
		}
		rec.Finish(flow.ByBaton, flow.ReasonClosed)
	}
}

func TestEjectAfterFailuresInARow(t *testing.T) {
	for _, c := range []struct {
		name    string
		connect string // + answers, r refused, t timeout, u unreachable, p no ports here
		ejected bool
	}{
		{"five in a row", "rtrur", true},
		{"four", "rrrr", false},
		{"an answer between", "rrrr+rrrr", false},
		{"five after an answer", "++rrrr+rrrrr", true},
		{"this host's own trouble", "pppppppppp", false},
		{"which ends no run", "rrpppprrr", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, w *world) {
				w.put(web(3), lb.HealthCheck{})
				for _, how := range c.connect {
					w.connect("web", 1, 1, map[rune]flow.DialFailure{
						'r': flow.DialRefused, 't': flow.DialTimeout, 'u': flow.DialUnreachable, 'p': flow.DialNoPorts,
					}[how])
				}
				pass(soon)
				want := "+++"
				if c.ejected {
					want = "+-+"
				}
				wantPicture(t, w, "web", want, "after %s", c.connect)
			})
		})
	}
}

// A backend stays away for longer each time, until it answers.
func TestBackOff(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.put(web(2), lb.HealthCheck{})
		away := func(failures int) time.Duration {
			t.Helper()
			w.connect("web", 0, failures, flow.DialRefused)
			began := time.Now()
			pass(soon)
			if w.picture("web") != "-+" {
				t.Fatalf("%d failures: backends %s", failures, w.picture("web"))
			}
			for w.picture("web") == "-+" && time.Since(began) < time.Hour {
				pass(10 * time.Millisecond)
			}
			return time.Since(began).Round(100 * time.Millisecond)
		}
		var got []time.Duration
		got = append(got, away(5))
		for range 8 {
			got = append(got, away(1)) // one more is enough once it is back
		}
		w.connect("web", 0, 1, "")
		got = append(got, away(5))
		if want := "[1s 2s 4s 8s 16s 32s 1m0s 1m0s 1m0s 1s]"; fmt.Sprint(got) != want {
			t.Errorf("away for %v, want %s", got, want)
		}
		// It was not used for long: what was before does not count.
		away(1)
		away(1)
		pass(2 * ejectMemory)
		if d := away(1); d != time.Second {
			t.Errorf("after a long time: away for %s, want 1s", d)
		}
		if st := w.Stats(); st.Ejections != 13 || st.Ejected != 0 || st.Spared != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestEjectionReason(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.put(web(2), lb.HealthCheck{})
		w.connect("web", 1, 5, flow.DialTimeout)
		pass(soon)
		want := store.Health{Unhealthy: true, Reason: "ejected for 1s: failed 5 times"}
		if got := w.told("web", 1); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		pass(time.Second)
		if got := w.told("web", 1); got != (store.Health{Ramp: trialPercent}) {
			t.Errorf("afterwards %+v", got)
		}
	})
}

// One that refused at once costs nobody anything when it is tried again.
func TestNoTrialAfterRefusal(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.put(web(2), lb.HealthCheck{})
		w.connect("web", 0, 4, flow.DialTimeout)
		w.connect("web", 0, 1, flow.DialRefused)
		pass(soon)
		wantPicture(t, w, "web", "-+", "ejected")
		pass(time.Second)
		wantPicture(t, w, "web", "++", "back")
	})
}

// What becomes of a backend once its ejection is over, when connecting to it timed
// out: it gets next to nothing until it has answered, or a probe has, or none has
// failed for a while.
func TestTrial(t *testing.T) {
	for _, c := range []struct {
		name   string
		health lb.HealthCheck
		failed bool   // once more, half a second after it is back
		answer bool   // half a second after it is back
		want   string // each half second after that
	}{
		{"it answers", lb.HealthCheck{}, false, true, "~+++++++++"},
		{"nobody tries", lb.HealthCheck{}, false, false, "~~~~~+++++"},
		{"it fails", lb.HealthCheck{}, true, false, "----~~~~~~"},
		{"it answers, and ramps up", lb.HealthCheck{SlowStart: 3 * time.Second}, false, true, "~~~~~~~+++"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, w *world) {
				w.put(web(2), c.health)
				w.connect("web", 0, 5, flow.DialTimeout)
				pass(time.Second + 500*time.Millisecond)
				if got := w.told("web", 0); got.Ramp != trialPercent {
					t.Errorf("back: %+v", got)
				}
				switch {
				case c.failed:
					w.connect("web", 0, 1, flow.DialTimeout)
				case c.answer:
					w.connect("web", 0, 1, "")
				}
				got := ""
				for range c.want {
					pass(soon)
					got += w.picture("web")[:1]
					pass(500*time.Millisecond - soon)
				}
				if got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
			})
		})
	}
}

// A probe that passes ends a trial too.
func TestProbeEndsTrial(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.answers(func(target) outcome { return unable })
		w.put(web(2), every(2, 3))
		w.connect("web", 0, 5, flow.DialTimeout)
		pass(time.Second + 10*time.Millisecond)
		if got := w.told("web", 0); got.Ramp != trialPercent {
			t.Errorf("back: %+v", got)
		}
		w.answers(func(target) outcome { return passed })
		pass(2200 * time.Millisecond)
		wantPicture(t, w, "web", "++", "a second after a probe")
	})
}

// However many fail, half of the backends stay, and the last one always.
func TestEjectionLeavesEnough(t *testing.T) {
	for _, c := range []struct {
		n    int
		want string
	}{{1, "+"}, {2, "-+"}, {3, "--+"}, {4, "--++"}, {5, "---++"}, {10, "-----+++++"}} {
		bubble(t, Options{}, func(t *testing.T, w *world) {
			w.put(web(c.n), lb.HealthCheck{})
			for i := range c.n {
				w.connect("web", i, 5, flow.DialRefused)
				pass(soon)
			}
			wantPicture(t, w, "web", c.want, "%d backends", c.n)
			if st := w.Stats(); st.Ejected != strings.Count(c.want, "-") || st.Spared == 0 {
				t.Errorf("%d backends: %+v", c.n, st)
			}
		})
	}
}

// Only backends that would take new flows count.
func TestEjectionCountsUsableBackends(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		svc := web(4)
		svc.Backends[1].State = lb.StateDrain
		svc.Backends[2].State = lb.StateDown
		w.put(svc, lb.HealthCheck{})
		for _, i := range []int{1, 2} { // nobody sends them new flows
			w.connect("web", i, 9, flow.DialRefused)
		}
		pass(soon)
		wantPicture(t, w, "web", "++++", "draining and down")
		if err := w.store.Drain(store.Target{Service: "web", Backend: addr(0)}); err != nil {
			t.Fatal(err)
		}
		w.programmed()
		w.connect("web", 3, 9, flow.DialRefused)
		pass(soon)
		wantPicture(t, w, "web", "++++", "the last one")
		if err := w.store.Undrain(store.Target{Service: "web", Backend: addr(0)}); err != nil {
			t.Fatal(err)
		}
		w.programmed()
		w.connect("web", 3, 1, flow.DialRefused)
		pass(soon)
		wantPicture(t, w, "web", "+++-", "no longer the last one")
	})
}

// When all that are left are down by probe, nothing is ejected besides: package
// sched uses all of them then.
func TestEjectionBesideProbes(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.answers(func(at target) outcome {
			if at.address == addr(0) {
				return passed
			}
			return refused
		})
		w.put(web(3), every(1, 1))
		pass(time.Second)
		wantPicture(t, w, "web", "+--", "by probe")
		w.connect("web", 0, 9, flow.DialRefused)
		w.connect("web", 1, 9, flow.DialRefused)
		pass(soon)
		wantPicture(t, w, "web", "+--", "the last one")
		if got := w.told("web", 1).Reason; !strings.HasSuffix(got, "tcp probe") {
			t.Errorf("reason %q", got)
		}
	})
}

// A probe that passes ends an ejection, but not one that began before it.
func TestProbeEndsEjection(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.put(web(2), every(2, 3))
		pass(10 * time.Second)
		for range 4 { // eight seconds by then
			w.connect("web", 0, 5, flow.DialRefused)
			pass(soon)
			for w.picture("web") != "++" {
				pass(100 * time.Millisecond)
			}
		}
		w.connect("web", 0, 1, flow.DialRefused)
		began := time.Now()
		pass(soon)
		wantPicture(t, w, "web", "-+", "ejected")
		for w.picture("web") != "++" {
			pass(10 * time.Millisecond)
		}
		if d := time.Since(began); d > 1200*time.Millisecond {
			t.Errorf("back after %s, with a probe every second", d)
		}
		w.answers(func(target) outcome { time.Sleep(300 * time.Millisecond); return passed })
		w.probes()
		for len(w.probes()) == 0 {
			pass(10 * time.Millisecond)
		}
		w.connect("web", 0, 5, flow.DialRefused)
		w.connect("web", 1, 0, "")
		pass(290 * time.Millisecond) // the probe that has begun has passed meanwhile, at most one other began
		if st := w.Stats(); st.Ejected != 1 {
			t.Errorf("%+v", st)
		}
		pass(time.Second)
	})
}

// A service without a probe costs nothing until a backend is in trouble, and
// nothing again afterwards.
func TestPassiveServicesAreForgotten(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		svc := web(3)
		svc.Balance = lb.LeastConnections // so that it ramps too
		w.put(svc, lb.HealthCheck{})
		w.put(named("idle", 2, 3), lb.HealthCheck{})
		w.connect("web", 0, 4, flow.DialRefused)
		pass(soon)
		if n := w.known(); n != 0 {
			t.Errorf("%d backends known before there is trouble", n)
		}
		w.connect("web", 0, 1, flow.DialRefused)
		pass(soon)
		if n := w.known(); n != 1 {
			t.Errorf("%d backends known, want the one in trouble", n)
		}
		pass(ejectMemory + 20*time.Second)
		wantPicture(t, w, "web", "+++", "in the end")
		if n := w.known(); n != 0 {
			t.Errorf("%d backends known afterwards", n)
		}
		if c := w.Checker; len(c.services) != 0 || len(c.alarms) != 0 || len(c.ramping) != 0 {
			t.Errorf("%d services, %d alarms, %d ramps are left", len(c.services), len(c.alarms), len(c.ramping))
		}
	})
}

// known is how many backends the checker keeps anything of.
func (w *world) known() int {
	w.Checker.mu.Lock()
	defer w.Checker.mu.Unlock()
	n := 0
	for _, s := range w.services {
		n += len(s.backends)
	}
	return n
}

// A backend or a service that is gone, or comes back as new, leaves nothing.
func TestEjectedBackendGoes(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.put(web(3), lb.HealthCheck{})
		w.connect("web", 2, 5, flow.DialRefused)
		pass(soon)
		wantPicture(t, w, "web", "++-", "ejected")
		w.put(web(2), lb.HealthCheck{})
		if n := w.known(); n != 0 {
			t.Errorf("%d backends known after it went", n)
		}
		w.put(web(3), lb.HealthCheck{})
		wantPicture(t, w, "web", "+++", "it is a new one")
		w.connect("web", 1, 5, flow.DialRefused)
		pass(soon)
		w.source.Delete("web")
		w.programmed()
		pass(5 * time.Second)
		if n := w.known(); n != 0 {
			t.Errorf("%d backends known after the service went", n)
		}
	})
}
