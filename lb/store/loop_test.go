package store

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/baton-lb/baton/lb"
)

type programmerFunc func(context.Context, Change) []Failure

func (f programmerFunc) Program(ctx context.Context, c Change) []Failure { return f(ctx, c) }

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{}))
		synctest.Wait()
		if err := l.Run(t.Context()); !errors.Is(err, ErrRunning) {
			t.Errorf("a second Run: %v", err)
		}
		l.stop(t)
		must(t, l.file.Upsert(service("web", "tcp://10.0.0.1:80")))
		if err := l.Programmed(t.Context(), 1); !errors.Is(err, ErrStopped) {
			t.Errorf("waiting for a store that has stopped: %v", err)
		}
		l.start(t)
		must(t, l.Programmed(t.Context(), 1))
		l.stop(t)
		must(t, l.Programmed(t.Context(), 1))
	})
}

func TestProgrammedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{}))
		defer l.stop(t)
		l.Register(Frontends, "slow", programmerFunc(func(context.Context, Change) []Failure {
			time.Sleep(time.Second)
			return []Failure{{Service: "web", Err: errInjected}} // once is once, also when it fails
		}))
		synctest.Wait()
		start := time.Now()
		must(t, l.file.Upsert(service("web", "tcp://10.0.0.1:80")))
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := l.Programmed(short, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after half a second: %v", err)
		}
		if st := l.Stats(); st.Programmed != 0 || st.Revision != 1 || st.Pending != 500*time.Millisecond {
			t.Errorf("stats: %+v", st)
		}
		must(t, l.Programmed(t.Context(), 1))
		if d := time.Since(start); d != time.Second {
			t.Errorf("waited %s", d)
		}
		if st := l.Stats(); st.Programmed != 1 || st.Pending != 0 || st.Rounds != 1 || st.Last.Duration != time.Second {
			t.Errorf("stats: %+v", st)
		}
	})
}

// A stop in the middle of a round loses nothing: the next Run begins where the
// one before did not get to.
func TestStopInARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{}))
		first := l.record(t, Backends, "first")
		var block, stopped atomic.Bool
		block.Store(true)
		l.Register(Frontends, "stuck", programmerFunc(func(ctx context.Context, _ Change) []Failure {
			if block.Load() {
				<-ctx.Done()
				stopped.Store(true)
			}
			return nil
		}))
		last := l.record(t, Cleanup, "last")
		must(t, l.file.Replace(many(3, 1)))
		synctest.Wait()
		l.stop(t)
		if !stopped.Load() || last.has(numbered(0, 1).Name) {
			t.Fatal("the last phase must not be reached by a round that was stopped")
		}
		if st := l.Stats(); st.Programmed != 0 {
			t.Errorf("programmed %d", st.Programmed)
		}
		block.Store(false)
		l.start(t)
		must(t, l.Programmed(t.Context(), 1))
		must(t, first.matches(l.Snapshot()))
		must(t, last.matches(l.Snapshot()))
		l.stop(t)
	})
}

// A programmer that gets over its failure in a round that is stopped must not
// leave the later phases behind for ever.
func TestStopAfterARecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{}))
		first := l.record(t, Backends, "first")
		var block atomic.Bool
		l.Register(Frontends, "stuck", programmerFunc(func(ctx context.Context, _ Change) []Failure {
			if block.Load() {
				<-ctx.Done()
			}
			return nil
		}))
		last := l.record(t, Cleanup, "last")
		must(t, l.file.Upsert(service("web", "tcp://10.0.0.1:80")))
		synctest.Wait()
		first.setFail(failing("web", ""))
		must(t, l.file.Upsert(service("web", "tcp://10.0.0.2:80")))
		synctest.Wait()
		first.setFail(nil)
		block.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		l.stop(t)
		block.Store(false)
		l.start(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		must(t, last.matches(l.Snapshot()))
		l.stop(t)
	})
}

func TestHooksHearOfRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLoop(t, New(Options{}))
		defer l.stop(t)
		var rounds []Round
		l.OnProgrammed(func(r Round) { rounds = append(rounds, r) })
		l.Register(Frontends, "slow", programmerFunc(func(context.Context, Change) []Failure {
			time.Sleep(2 * time.Second)
			return nil
		}))
		must(t, l.file.Replace([]lb.Service{service("a", "tcp://10.0.0.1:80"), service("b", "tcp://10.0.0.2:80")}))
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(rounds) != 1 {
			t.Fatalf("%d rounds", len(rounds))
		}
		r := rounds[0]
		if r.Revision != 1 || r.Services != 2 || r.Duration != 2*time.Second || r.Phases[Frontends] != 2*time.Second || r.Phases[Backends] != 0 {
			t.Errorf("%+v", r)
		}
	})
}
