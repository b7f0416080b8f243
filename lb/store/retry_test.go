package store

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/baton-lb/baton/lb"
)

func TestBackoff(t *testing.T) {
	b := backoff{100 * time.Millisecond, 15 * time.Second}
	for attempt, want := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 5: 1600 * time.Millisecond,
		8: 12800 * time.Millisecond, 9: 15 * time.Second, 1000: 15 * time.Second,
	} {
		seen := map[time.Duration]bool{}
		for range 100 {
			d := b.after(attempt)
			if d < want/2 || d > want {
				t.Errorf("attempt %d: %s, want %s to %s", attempt, d, want/2, want)
			}
			seen[d] = true
		}
		if len(seen) < 50 {
			t.Errorf("attempt %d: no jitter", attempt)
		}
	}
}

// A port that is taken is tried again with nothing else happening, further and
// further apart, and when it comes free the frontend gets ready.
func TestRetryByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{}))
		defer l.stop(t)
		r := l.record(t, Frontends, "relay")
		r.setFail(failing("web", "tcp://10.0.0.1:80"))
		must(t, l.file.Upsert(service("web", "tcp://10.0.0.1:80 tcp://10.0.0.1:443")))
		time.Sleep(time.Minute)
		log := l.takeLog()
		var gaps []time.Duration
		for i := 1; i < len(log); i++ {
			gaps = append(gaps, log[i].at.Sub(log[i-1].at))
		}
		for i, gap := range gaps {
			if want := min(100*time.Millisecond<<i, 15*time.Second); gap < want/2-retrySlack || gap > want+retrySlack {
				t.Errorf("retry %d after %s, want %s to %s", i+1, gap, want/2, want)
			}
		}
		if len(gaps) < 8 || len(gaps) > 20 {
			t.Errorf("%d retries in a minute", len(gaps))
		}
		if st := l.FrontendStatus(frontendKey("tcp://10.0.0.1:80")); st.State != Failed || st.Reason != "injected" {
			t.Errorf("%+v", st)
		}
		if st := l.FrontendStatus(frontendKey("tcp://10.0.0.1:443")); st.State != Ready {
			t.Errorf("its neighbour is %+v", st)
		}
		r.setFail(nil)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if st := l.FrontendStatus(frontendKey("tcp://10.0.0.1:80")); st.State != Ready {
			t.Errorf("the port is free: %+v", st)
		}
		l.calls()
		time.Sleep(time.Minute)
		if got := l.calls(); len(got) != 0 {
			t.Errorf("still retried: %v", got)
		}
	})
}

// A frontend that fails for ever delays nobody, and changes of its service do
// not put its next retry off.
func TestFailureDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{}))
		defer l.stop(t)
		r := l.record(t, Frontends, "relay")
		r.setFail(failing("bad", "tcp://10.0.0.1:80"))
		bad := service("bad", "tcp://10.0.0.1:80")
		must(t, l.file.Upsert(bad))
		for i := range 100 {
			time.Sleep(10 * time.Millisecond)
			if i%2 == 0 {
				bad.DrainTimeout++
				must(t, l.file.Upsert(bad))
			}
			good := numbered(i, 1)
			must(t, l.file.Upsert(good))
			synctest.Wait()
			if st := l.FrontendStatus(good.Frontends[0].FrontendKey); st.State != Ready {
				t.Fatalf("%s: %+v", good.Name, st)
			}
		}
		l.loop.mu.Lock()
		attempts := l.loop.programmers[0].failed[object{"bad", bad.Frontends[0].FrontendKey}].attempts
		l.loop.mu.Unlock()
		if attempts > 7 {
			t.Errorf("%d attempts counted in a second", attempts)
		}
		r.setFail(nil)
		time.Sleep(3 * time.Second) // the fifth attempt may be followed by 1.6 s
		synctest.Wait()
		must(t, r.matches(l.Snapshot()))
	})
}

// A service that fails as a whole is held back from the later phases, and only
// it; they get it, with all that changed meanwhile, once it works.
func TestWholeServiceIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{}))
		defer l.stop(t)
		routes, relay := l.record(t, Backends, "routes"), l.record(t, Frontends, "relay")
		web, api := service("web", "tcp://10.0.0.1:80"), service("api", "tcp://10.0.0.2:80")
		must(t, l.file.Replace([]lb.Service{web, api}))
		synctest.Wait()
		routes.setFail(failing("web", ""))
		web.DrainTimeout++
		api.DrainTimeout++
		must(t, l.file.Replace([]lb.Service{web, api}))
		l.calls()
		web.DrainTimeout++
		must(t, l.file.Upsert(web))
		time.Sleep(10 * time.Second)
		for _, c := range l.calls() {
			if c == "relay [web]" {
				t.Fatal("web reached the next phase")
			}
		}
		if st := l.FrontendStatus(frontendKey("tcp://10.0.0.1:80")); st.State != Failed {
			t.Errorf("web is %+v", st)
		}
		late := l.record(t, Cleanup, "late")
		synctest.Wait()
		if late.has("web") || !late.has("api") {
			t.Error("a late programmer must get api, and web not before its turn")
		}
		l.file.Delete("web")
		time.Sleep(time.Second)
		synctest.Wait()
		if !relay.has("web") {
			t.Error("the frontends of web went before its backends could")
		}
		routes.setFail(nil)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		for _, r := range []*recorder{routes, relay, late} {
			must(t, r.matches(l.Snapshot()))
		}
	})
}

// A failure in a later phase, of a service that is then held back, must not make
// the loop spin.
func TestHeldBackDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{RetryMin: 10 * time.Second}))
		defer l.stop(t)
		routes, relay := l.record(t, Backends, "routes"), l.record(t, Frontends, "relay")
		relay.setFail(failing("web", "tcp://10.0.0.1:80"))
		web := service("web", "tcp://10.0.0.1:80")
		must(t, l.file.Upsert(web))
		time.Sleep(time.Second)
		routes.setFail(failing("web", ""))
		web.DrainTimeout++
		must(t, l.file.Upsert(web))
		l.calls()
		time.Sleep(5 * time.Minute)
		if n := len(l.calls()); n > 60 {
			t.Errorf("%d calls in five minutes", n)
		}
		routes.setFail(nil)
		relay.setFail(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		must(t, relay.matches(l.Snapshot()))
		if f := l.Failures(); len(f) > 0 {
			t.Errorf("left: %v", f)
		}
	})
}

// The log has one line when an object fails, one for each new cause, and one
// when it works again; not one per retry, and not thousands at once.
func TestFailuresAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := startLoop(t, New(Options{Log: slog.New(slog.NewTextHandler(&out, nil))}))
		r := l.record(t, Frontends, "relay")
		r.setFail(failing("web", "tcp://10.0.0.1:80"))
		must(t, l.file.Upsert(service("web", "tcp://10.0.0.1:80")))
		time.Sleep(time.Minute)
		r.setFail(nil)
		time.Sleep(time.Minute)
		r.setFail(func(c Change) (all []Failure) {
			for _, name := range c.Services {
				all = append(all, Failure{Service: name, Err: errInjected})
			}
			return all
		})
		must(t, l.file.Replace(many(100, 1)))
		synctest.Wait()
		l.stop(t)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2+notesPerRound+1 {
			t.Fatalf("%d lines:\n%s", len(lines), out.String())
		}
		for i, want := range []string{
			`level=WARN msg="programming failed" programmer=relay phase=frontends svc=web frontend=tcp://10.0.0.1:80 err=injected`,
			`level=INFO msg="programmed after all" programmer=relay phase=frontends svc=web frontend=tcp://10.0.0.1:80`,
		} {
			if !strings.HasSuffix(lines[i], want) {
				t.Errorf("line %d is %s", i, lines[i])
			}
		}
		if last := lines[len(lines)-1]; !strings.HasSuffix(last, "objects=81") {
			t.Errorf("the last line is %s", last)
		}
	})
}

func TestFailuresAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{}))
		defer l.stop(t)
		l.record(t, Frontends, "relay").setFail(func(Change) []Failure {
			return []Failure{
				{Service: "web", Frontend: frontendKey("tcp://10.0.0.1:80"), Err: errInjected},
				{Service: "api", Err: errInjected},
			}
		})
		must(t, l.file.Replace([]lb.Service{service("web", "tcp://10.0.0.1:80"), service("api", "tcp://10.0.0.2:80")}))
		synctest.Wait()
		var got []string
		for _, f := range l.Failures() {
			got = append(got, f.Error())
		}
		want := []string{`service "api": injected`, `service "web": tcp://10.0.0.1:80: injected`}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if n := l.Stats().Failing; n != 2 {
			t.Errorf("failing %d", n)
		}
	})
}
