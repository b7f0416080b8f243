package health

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/lb/store"
)

// One backend, one probe after the other: + passes, - fails, ! could not be
// asked. After each: is it up?
func TestRiseAndFall(t *testing.T) {
	for _, c := range []struct {
		name       string
		rise, fall int
		answers    string
		up         string
	}{
		{"healthy all along", 2, 3, "+++++", "+++++"},
		{"new and dead", 2, 3, "-----", "++---"},
		{"falls and rises", 2, 3, "+---++", "+++--+"},
		{"a failure now and then", 2, 3, "--+--+--+", "+++++++++"},
		{"a success now and then", 2, 3, "---+-+-+-++", "++--------+"},
		{"at the first word", 1, 1, "-+-+", "-+-+"},
		{"slow to rise", 5, 1, "-+++++", "-----+"},
		{"flapping is damped", 3, 3, "-+-+-+-+--+-+", "+++++++++++++"},
		{"our own trouble proves nothing", 2, 3, "--!-+!!!---!+!+", "+++--------" + "---+"},
		{"our own trouble ends no run", 2, 3, "-!-!-", "++++-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, w *world) {
				asked := 0
				w.answers(func(target) outcome {
					asked++ // one probe at a time
					if asked > len(c.answers) {
						return unable
					}
					return map[byte]outcome{'+': passed, '-': refused, '!': unable}[c.answers[asked-1]]
				})
				w.put(web(1), every(c.rise, c.fall))
				var got strings.Builder
				for range c.answers {
					for len(w.probes()) == 0 {
						pass(10 * time.Millisecond)
					}
					got.WriteString(w.picture("web"))
				}
				if got.String() != c.up {
					t.Errorf("answers %s: %s, want %s", c.answers, got.String(), c.up)
				}
			})
		})
	}
}

// What is told of a backend that is down is what its last probe said.
func TestReasonFollowsTheProbe(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.answers(func(target) outcome { return refused })
		h := every(1, 1)
		h.Port = 8080
		w.put(web(2), h)
		pass(time.Second)
		want := store.Health{Unhealthy: true, Reason: "refused: tcp probe at port 8080"}
		if got := w.told("web", 0); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		w.answers(func(target) outcome { return silent })
		before := w.store.Snapshot().Revision
		pass(3 * time.Second)
		want.Reason = "no answer within 500ms: tcp probe at port 8080"
		if got := w.told("web", 0); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if n := w.store.Snapshot().Revision - before; n > 2 {
			t.Errorf("%d snapshots for one piece of news about two backends", n)
		}
	})
}

// The distance between two probes is the interval, but for a tenth.
func TestJitter(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.answers(func(target) outcome { time.Sleep(30 * time.Millisecond); return passed })
		start := time.Now()
		w.put(web(1), every(2, 3))
		pass(200 * time.Second)
		probes := w.probes()
		if first := probes[0].at.Sub(start); first > 5*time.Millisecond {
			t.Errorf("the first probe began after %s", first)
		}
		var gaps []time.Duration
		for i := range probes[1:] {
			gaps = append(gaps, probes[i+1].at.Sub(probes[i].at))
		}
		slices.Sort(gaps)
		least, most := gaps[0], gaps[len(gaps)-1]
		if least < 900*time.Millisecond || most > 1101*time.Millisecond || most-least < 100*time.Millisecond {
			t.Errorf("%d gaps between %s and %s", len(gaps), least, most)
		}
		if n := len(probes); n < 190 || n > 212 {
			t.Errorf("%d probes in 200 s", n)
		}
	})
}

// A probe that takes longer than the interval is followed by the next at once,
// and never accompanied by it.
func TestSlowProbe(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.answers(func(target) outcome { time.Sleep(3 * time.Second); return passed })
		w.put(web(1), every(2, 3))
		pass(30 * time.Second)
		if n := len(w.probes()); n < 10 || n > 11 {
			t.Errorf("%d probes of 3 s in 30 s", n)
		}
		w.answers(func(target) outcome { return passed })
		pass(4 * time.Second)
	})
}

// Many backends that appear together are not probed together, neither at first
// nor later.
func TestManyAreSpread(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		const n = 2000
		start := time.Now()
		w.put(web(n), every(2, 3))
		pass(20 * time.Second)
		bins := make(map[int]int)
		first := make(map[string]bool)
		for _, p := range w.probes() {
			bin := int(p.at.Sub(start) / (100 * time.Millisecond))
			bins[bin]++
			if bin <= 10 {
				first[p.address.String()] = true
			}
		}
		if len(first) != n {
			t.Errorf("%d of %d backends were probed in about the first interval", len(first), n)
		}
		for bin := range 200 {
			want := n / 10
			switch bin { // the second probe comes up to a tenth of an interval early, or late
			case 9:
				want += want / 4
			case 10:
				want -= want / 4
			}
			if got := bins[bin]; got < want*6/10 || got > want*14/10 {
				t.Errorf("tenth %d: %d probes, want about %d", bin, got, want)
			}
		}
	})
}

// No more probes run at once than allowed. Those that wait are late, not failed,
// and all get their turn.
func TestBoundedConcurrency(t *testing.T) {
	bubble(t, Options{Concurrency: 10}, func(t *testing.T, w *world) {
		running, most := 0, 0
		w.answers(func(target) outcome {
			w.mu.Lock()
			running++
			most = max(most, running)
			w.mu.Unlock()
			time.Sleep(400 * time.Millisecond)
			w.mu.Lock()
			running--
			w.mu.Unlock()
			return passed
		})
		const n = 100
		w.put(web(n), every(1, 1))
		pass(2 * time.Second)
		if st := w.Stats(); st.Running != 10 || st.Waiting < 50 || st.Probed != n {
			t.Errorf("%+v", st)
		}
		pass(38 * time.Second)
		if most != 10 {
			t.Errorf("%d probes at once, want 10", most)
		}
		each := make(map[string]int)
		for _, p := range w.probes() {
			each[p.address.String()]++
		}
		for a, times := range each {
			if times < 9 || times > 11 { // 10 places, 400 ms each: 25 a second
				t.Errorf("%s was probed %d times in 40 s", a, times)
			}
		}
		st := w.Stats()
		if len(each) != n || st.Late < 500 || st.Down > 0 {
			t.Errorf("%d backends probed: %+v", len(each), st)
		}
		// Every place is used again once the probes are quick.
		w.answers(func(target) outcome { return refused })
		pass(5 * time.Second)
		if st := w.Stats(); st.Running != 0 || st.Waiting != 0 || st.Down != n {
			t.Errorf("in the end: %+v", st)
		}
	})
}

func TestDefaultConcurrency(t *testing.T) {
	if n := defaultConcurrency(); n < 4 || n > 512 {
		t.Errorf("%d", n)
	}
}

// Close ends probes that would go on for long, and waits for them.
func TestCloseEndsProbes(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		ended := 0
		w.answersUntil(func(ctx context.Context, _ target) outcome {
			<-ctx.Done()
			w.mu.Lock()
			ended++
			w.mu.Unlock()
			return silent
		})
		h := every(1, 1)
		h.Timeout = time.Hour
		w.put(web(3), h)
		pass(time.Second)
		before := time.Now()
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if ended != 3 || time.Since(before) != 0 {
			t.Errorf("%d of 3 probes ended in %s", ended, time.Since(before))
		}
		pass(time.Minute)
		wantPicture(t, w, "web", "+++", "after Close")
	})
}

// A probe takes no longer than its timeout.
func TestTimeoutBoundsProbes(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, w *world) {
		w.answersUntil(func(ctx context.Context, _ target) outcome {
			<-ctx.Done()
			return failed(ctx.Err())
		})
		w.put(web(2), every(1, 1))
		pass(600 * time.Millisecond)
		wantPicture(t, w, "web", "--", "after the timeout")
	})
}
