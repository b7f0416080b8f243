package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/baton-lb/baton/lb"
)

var errInjected = errors.New("injected")

// call is one call of a recorder.
type call struct {
	at       time.Time
	name     string
	services []string
	synced   bool
}

// recorder is a Programmer that writes down its calls, and checks that From is
// what it has programmed last without a failure.
type recorder struct {
	t    *testing.T
	name string
	loop *loopTest

	// Guarded by loop.mu.
	fail func(c Change) []Failure // nil = never
	done map[string]*Service      // as last programmed without a failure
}

func (r *recorder) Program(_ context.Context, c Change) []Failure {
	r.loop.mu.Lock()
	defer r.loop.mu.Unlock()
	r.loop.log = append(r.loop.log, call{time.Now(), r.name, c.Services, c.Synced})
	if len(r.loop.log) > 10_000 {
		panic("the loop spins")
	}
	r.checkFrom(c)
	var failures []Failure
	if r.fail != nil {
		failures = r.fail(c)
	}
	for _, name := range c.Services {
		if slices.ContainsFunc(failures, func(f Failure) bool { return f.Service == name }) {
			continue
		}
		if svc, ok := c.To.Service(name); ok {
			r.done[name] = svc
		} else {
			delete(r.done, name)
		}
	}
	return failures
}

func (r *recorder) checkFrom(c Change) {
	if !slices.IsSorted(c.Services) {
		r.t.Errorf("%s: services %v are not sorted", r.name, c.Services)
	}
	n := 0
	for svc := range c.From.Services() {
		if n++; r.done[svc.Name] != svc {
			r.t.Errorf("%s: From has %s of revision %d, which is not what worked last", r.name, svc.Name, svc.Revision)
		}
		for _, fe := range svc.FrontendSet {
			if _, ok := c.From.Frontend(fe.FrontendKey); !ok {
				r.t.Errorf("%s: From has %s but does not find %s", r.name, svc.Name, fe)
			}
		}
	}
	if n != len(r.done) {
		r.t.Errorf("%s: From has %d services, want %d", r.name, n, len(r.done))
	}
}

func (r *recorder) setFail(f func(Change) []Failure) {
	r.loop.mu.Lock()
	defer r.loop.mu.Unlock()
	r.fail = f
}

func (r *recorder) has(service string) bool {
	r.loop.mu.Lock()
	defer r.loop.mu.Unlock()
	return r.done[service] != nil
}

// matches reports whether everything in snap, and nothing else, is programmed.
func (r *recorder) matches(snap *Snapshot) error {
	r.loop.mu.Lock()
	defer r.loop.mu.Unlock()
	for svc := range snap.Services() {
		if r.done[svc.Name] != svc {
			return fmt.Errorf("%s: %s is not programmed", r.name, svc.Name)
		}
	}
	if len(r.done) != snap.Len() {
		return fmt.Errorf("%s: %d services, want %d", r.name, len(r.done), snap.Len())
	}
	return nil
}

// failing fails one frontend, or the whole service for "".
func failing(service, frontend string) func(Change) []Failure {
	f := Failure{Service: service, Err: errInjected}
	if frontend != "" {
		f.Frontend = frontendKey(frontend)
	}
	return func(c Change) []Failure {
		if slices.Contains(c.Services, service) {
			return []Failure{f}
		}
		return nil
	}
}

// loopTest is a store that runs in a synctest bubble, with recorders.
type loopTest struct {
	*Store
	file   *Source
	cancel context.CancelFunc
	done   chan error

	mu  sync.Mutex // guards what follows
	log []call
}

func startLoop(t *testing.T, s *Store) *loopTest {
	l := &loopTest{Store: s, file: s.Source("file"), done: make(chan error, 1)}
	l.start(t)
	return l
}

func (l *loopTest) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l.cancel = cancel
	go func() { l.done <- l.Run(ctx) }()
	synctest.Wait()
}

func (l *loopTest) stop(t *testing.T) {
	l.cancel()
	must(t, <-l.done)
}

func (l *loopTest) record(t *testing.T, phase Phase, name string) *recorder {
	r := &recorder{t: t, name: name, loop: l, done: make(map[string]*Service)}
	l.Register(phase, name, r)
	return r
}

// calls returns what was called since the last time, as "name service,service".
func (l *loopTest) calls() []string {
	var out []string
	for _, c := range l.takeLog() {
		out = append(out, fmt.Sprintf("%s %v", c.name, c.services))
	}
	return out
}

func (l *loopTest) takeLog() []call {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.log
	l.log = nil
	return log
}

func TestRoundsGoThroughPhases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{}))
		defer l.stop(t)
		l.record(t, Cleanup, "conntrack")
		l.record(t, Frontends, "relay")
		l.record(t, Backends, "routes")
		l.record(t, Frontends, "guard")
		l.calls()
		must(t, l.file.Upsert(service("web", "tcp://10.0.0.1:80")))
		want := []string{"routes [web]", "relay [web]", "guard [web]", "conntrack [web]"}
		if got := l.calls(); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		l.file.Delete("web")
		if got := l.calls(); !slices.Equal(got, want) {
			t.Errorf("deleted: %v, want %v", got, want)
		}
	})
}

// What changes while a round goes on is programmed in one next round.
func TestRoundsCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{}))
		defer l.stop(t)
		r := l.record(t, Frontends, "relay")
		r.setFail(func(Change) []Failure { time.Sleep(time.Second); return nil })
		synctest.Wait()
		for i := range 10 {
			must(t, l.file.Upsert(numbered(i, 1)))
		}
		must(t, l.Programmed(t.Context(), l.Snapshot().Revision))
		if n := len(l.calls()); n > 2 {
			t.Errorf("%d rounds for ten changes", n)
		}
		must(t, r.matches(l.Snapshot()))
	})
}

func TestLateProgrammerGetsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{}))
		defer l.stop(t)
		must(t, l.file.Replace(many(5, 1)))
		synctest.Wait()
		r := l.record(t, Backends, "late")
		synctest.Wait()
		must(t, r.matches(l.Snapshot()))
	})
}

func TestPruningWaitsForEverySource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{}))
		defer l.stop(t)
		l.record(t, Cleanup, "routes")
		kube := l.Source("kube")
		must(t, l.file.Upsert(service("web", "tcp://10.0.0.1:80")))
		synctest.Wait()
		l.file.Synced()
		for _, c := range l.takeLog() {
			if c.synced {
				t.Fatal("synced while a source is missing")
			}
		}
		kube.Synced()
		if log := l.takeLog(); len(log) != 1 || !log[0].synced || len(log[0].services) != 0 {
			t.Errorf("calls when the last one has synced: %+v", log)
		}
		kube.Synced()
		must(t, l.file.Upsert(service("web", "tcp://10.0.0.2:80")))
		if log := l.takeLog(); len(log) != 1 || !log[0].synced {
			t.Errorf("afterwards: %+v", log)
		}
	})
}

// faulty fails about one object of four: a frontend or a whole service.
func faulty(rng *rand.Rand) func(Change) []Failure {
	return func(c Change) []Failure {
		var failures []Failure
		for _, name := range c.Services {
			f := Failure{Service: name, Err: fmt.Errorf("%w %d", errInjected, rng.IntN(2))}
			svc, ok := c.To.Service(name)
			switch n := rng.IntN(8); {
			case n == 0:
				failures = append(failures, f)
			case n == 1 && ok:
				f.Frontend = svc.FrontendSet[0].FrontendKey
				failures = append(failures, f)
			}
		}
		return failures
	}
}

// Programmers that fail now and then, in all phases, while services come, go,
// change hands and health: every call has the right From (see recorder), and in
// the end everything is as it should be.
func TestFaultsConverge(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			l := startLoop(t, New(Options{}))
			defer l.stop(t)
			var all []*recorder
			for i, phase := range []Phase{Backends, Backends, Frontends, Frontends, Cleanup} {
				r := l.record(t, phase, fmt.Sprintf("%s-%d", phase, i))
				r.setFail(faulty(rand.New(rand.NewPCG(seed, uint64(i)+1))))
				all = append(all, r)
			}
			for range 200 {
				shake(t, l, rng)
				time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
			}
			for _, r := range all {
				r.setFail(nil)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			snap := l.Snapshot()
			for _, r := range all {
				if err := r.matches(snap); err != nil {
					t.Error(err)
				}
			}
			if f := l.Failures(); len(f) != 0 {
				t.Errorf("still failed: %v", f)
			}
			for fe := range snap.Frontends() {
				if st := l.FrontendStatus(fe.FrontendKey); st.State != Ready {
					t.Errorf("%s is %+v", fe, st)
				}
			}
		})
	}
}

// shake changes something. Frontends move from service to service.
func shake(t *testing.T, l *loopTest, rng *rand.Rand) {
	svc := numbered(rng.IntN(6), 1+rng.IntN(3))
	switch rng.IntN(5) {
	case 0:
		l.file.Delete(svc.Name)
	case 1:
		l.SetHealth(svc.Name, svc.Backends[0].Address, Health{Unhealthy: rng.IntN(2) == 0})
	case 2:
		svc.Frontends = append(svc.Frontends, lb.Frontend{FrontendKey: frontendKey("tcp://10.99.0.1:80")})
		_ = l.file.Upsert(svc) // another service may have it
	default:
		must(t, l.file.Upsert(svc))
	}
}
