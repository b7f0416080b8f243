package health

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// asked is which backends were probed since the last call, by their last byte.
func (w *world) asked() string {
	seen := make(map[byte]bool)
	for _, p := range w.probes() {
		seen[p.address.Addr().As4()[3]-1] = true
	}
	var out strings.Builder
	for i := range byte(10) {
		if seen[i] {
			out.WriteByte('0' + i)
		}
	}
	return out.String()
}

// New backends are probed at once, those that are gone no more.
func TestFollowBackends(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		h := every(1, 1)
		step := func(when, want string, d time.Duration) {
			t.Helper()
			pass(d)
			if got := w.asked(); got != want {
				t.Errorf("%s: probed %q, want %q", when, got, want)
			}
		}
		w.put(web(2), h)
		step("at first", "01", 10*time.Millisecond)
		w.put(web(4), h)
		step("two more", "23", 10*time.Millisecond)
		step("all", "0123", 1200*time.Millisecond)
		svc := web(4)
		svc.Backends = svc.Backends[2:]
		w.put(svc, h)
		step("two less", "23", 1200*time.Millisecond)
		svc.Backends = slices.Clone(svc.Backends)
		svc.Backends[0].State = lb.StateDown
		w.put(svc, h)
		step("one is down", "3", 1200*time.Millisecond)
		svc.Backends = slices.Clone(svc.Backends)
		svc.Backends[0].State, svc.Backends[1].State = lb.StateReady, lb.StateDrain
		w.put(svc, h)
		step("it is back, the other drains", "23", 1200*time.Millisecond)
		if err := w.store.Drain(store.Target{Service: "web"}); err != nil {
			t.Fatal(err)
		}
		step("drained by command", "23", 1200*time.Millisecond)
		w.put(svc, lb.HealthCheck{})
		step("no check", "", 3*time.Second)
		w.put(svc, h)
		step("a check again", "23", 10*time.Millisecond)
		w.source.Delete("web")
		w.programmed()
		step("no service", "", 3*time.Second)
		if c := w.Checker; len(c.services) != 0 || len(c.alarms) != 0 {
			t.Errorf("%d services and %d alarms are left", len(c.services), len(c.alarms))
		}
	})
}

// What is known, also a run that is not complete, survives a reload and new
// settings.
func TestReloadKeepsWhatIsKnown(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.answers(func(at target) outcome {
			if at.address == addr(0) {
				return passed
			}
			return refused
		})
		h := every(2, 3)
		svc := web(2)
		w.put(svc, h)
		pass(1500 * time.Millisecond) // two failures
		wantPicture(t, w, "web", "++", "two failures")
		w.asked()
		svc.Limits.Connections = 7
		w.put(svc, h)
		pass(10 * time.Millisecond)
		if got := w.asked(); got != "" {
			t.Errorf("a reload of something else probed %q", got)
		}
		pass(990 * time.Millisecond)
		wantPicture(t, w, "web", "+-", "one more after a reload")

		h.Probe, h.Interval, h.Path, h.Status = lb.ProbeHTTP, 5*time.Second, "/ok", "200"
		w.put(svc, h)
		pass(10 * time.Millisecond)
		if got := w.asked(); got != "01" {
			t.Errorf("another check probed %q at once", got)
		}
		wantPicture(t, w, "web", "+-", "with another check")
		pass(4 * time.Second)
		if got := w.asked(); got != "" {
			t.Errorf("probed %q though the interval is longer now", got)
		}
		h.SlowStart = time.Minute
		w.put(svc, h)
		pass(10 * time.Millisecond)
		if got := w.asked(); got != "" {
			t.Errorf("a longer slow start probed %q", got)
		}
		w.put(svc, lb.HealthCheck{})
		pass(time.Millisecond)
		if w.told("web", 1).Unhealthy {
			t.Error("still unhealthy though nobody asks any more")
		}
	})
}

// The answer to a probe counts only for the settings it was asked with, and for
// the backend that was there then.
func TestAnswersToOldQuestions(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		old := every(1, 1)
		old.Timeout = 10 * time.Second
		slow := func(at target) outcome {
			if at.Port == 0 {
				time.Sleep(2 * time.Second)
				return refused
			}
			return passed
		}
		w.answers(slow)
		w.put(web(2), old)
		pass(time.Second)
		renewed := old
		renewed.Port = 81
		w.put(web(2), renewed)
		pass(1100 * time.Millisecond)
		wantPicture(t, w, "web", "++", "after the old answers")
		if got := w.asked(); got != "01" {
			t.Errorf("probed %q", got)
		}
		pass(10 * time.Second)
		wantPicture(t, w, "web", "++", "later")

		w.put(named("other", 2, 1), old)
		pass(time.Second)
		w.source.Delete("other")
		w.programmed()
		w.put(named("other", 2, 1), renewed)
		pass(1500 * time.Millisecond)
		wantPicture(t, w, "other", "+", "deleted and made again")
	})
}

// A backend that leaves and comes back between two rounds is the same to the
// checker and a new one to the store, which has forgotten its verdict.
func TestGoneAndBackBetweenRounds(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.answers(func(target) outcome { return refused })
		w.put(web(2), every(1, 1))
		pass(time.Second)
		wantPicture(t, w, "web", "--", "at first")
		if err := w.source.Upsert(web(1)); err != nil {
			t.Fatal(err)
		}
		if err := w.source.Upsert(web(2)); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Millisecond)
		wantPicture(t, w, "web", "--", "after it left and came back")
		down := web(2)
		down.Backends[1].State = lb.StateDown
		w.put(down, every(1, 1))
		pass(10 * time.Millisecond)
		wantPicture(t, w, "web", "-+", "one whose state is down")
	})
}

// All backends are down by probe: all are used, and the status says so.
func TestAllUnhealthyIsVisible(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.answers(func(target) outcome { return refused })
		svc := web(3)
		w.put(svc, every(1, 1))
		pass(2 * time.Second)
		wantPicture(t, w, "web", "---", "all down")
		st := w.store.FrontendStatus(svc.Frontends[0].FrontendKey)
		if want := (store.Status{State: store.Ready, Reason: "all backends are unhealthy: using them all"}); st != want {
			t.Errorf("%+v", st)
		}
		w.answers(func(target) outcome { return passed })
		pass(2 * time.Second)
		if st := w.store.FrontendStatus(svc.Frontends[0].FrontendKey); st.Reason != "" {
			t.Errorf("%+v", st)
		}
		for _, line := range []string{
			`level=WARN msg="backend is unhealthy" svc=web backend=10.1.0.2:80 reason="refused: tcp probe"`,
			`level=WARN msg="all backends are unhealthy: using them all" svc=web`,
			`level=INFO msg="not all backends are unhealthy any more" svc=web`,
			`level=INFO msg="backend is healthy again" svc=web backend=10.1.0.3:80`,
		} {
			if n := strings.Count(w.logged(), line); n != 1 {
				t.Errorf("logged %d times: %s\n%s", n, line, w.logged())
			}
		}
	})
}

func TestLog(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.put(web(2), lb.HealthCheck{})
		w.connect("web", 0, 5, flow.DialRefused)
		pass(2 * time.Second)
		w.answers(func(target) outcome { return unable })
		w.put(web(2), every(1, 1))
		pass(5 * time.Second)
		for line, want := range map[string]int{
			`level=WARN msg="backend is ejected" svc=web backend=10.1.0.1:80 reason="ejected for 1s: failed 5 times"`:    1,
			`level=INFO msg="backend is tried again" svc=web backend=10.1.0.1:80`:                                        1,
			`level=WARN msg="backend cannot be probed" svc=web backend=10.1.0.2:80 err="too many open files: tcp probe"`: 1,
		} {
			if n := strings.Count(w.logged(), line); n != want {
				t.Errorf("logged %d times, want %d: %s\n%s", n, want, line, w.logged())
			}
		}
	})
}

// A switch fails: a thousand backends are news, twenty of them a second.
func TestLogIsBounded(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.answers(func(target) outcome { return refused })
		w.put(web(1000), every(1, 1))
		pass(2 * time.Second)
		w.answers(func(target) outcome { return passed })
		pass(3 * time.Second)
		if n := strings.Count(w.logged(), "\n"); n > 7*newsPerSecond || n < newsPerSecond {
			t.Errorf("%d lines", n)
		}
		if !strings.Contains(w.logged(), "news of backends not shown") {
			t.Errorf("nobody says that there was more:\n%s", w.logged())
		}
	})
}

func TestStats(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.answers(func(at target) outcome {
			switch at.address {
			case addr(0):
				return refused
			case addr(1):
				return unable
			}
			return passed
		})
		w.put(web(3), every(1, 3))
		pass(1950 * time.Millisecond)
		st := w.Stats()
		for r, want := range map[flow.ProbeResult]uint64{flow.ProbeRefused: 2, flow.ProbeLocal: 2, flow.ProbePassed: 2} {
			if got := st.Probes[ProbeKey{lb.ProbeTCP, r}]; got < want || got > want+1 {
				t.Errorf("%s: %d probes, want %d", r, got, want)
			}
		}
		pass(2 * time.Second)
		if st := w.Stats(); st.Probed != 3 || st.Down != 1 || st.Running != 0 || st.Waiting != 0 {
			t.Errorf("%+v", st)
		}
	})
}
