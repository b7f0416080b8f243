package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// stage is to the demonstration what a *testing.T is to a test: what fails ends
// the story, and whatever was set up is undone, the last first.
type stage struct {
	ctx context.Context // ends with a signal

	mu       sync.Mutex // guards what follows
	cleanups []func()
	failure  error // the first
}

var _ testnet.TB = (*stage)(nil)

// perform plays the story on a goroutine of its own, which a failure ends, and
// returns when everything has been cleaned up. A ctx that ends interrupts it.
func perform(ctx context.Context, play func(*stage)) error {
	s := &stage{ctx: ctx}
	var running sync.WaitGroup
	running.Go(func() {
		defer s.cleanUp()
		play(s)
	})
	running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Helper implements testnet.TB.
func (s *stage) Helper() {}

// Context ends with a signal.
func (s *stage) Context() context.Context { return s.ctx }

// Cleanup has f called at the end of the story, however it ends.
func (s *stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// Fatalf ends the goroutine that calls it, and with it the story. Only the first
// failure is kept; after a signal that is the signal, whatever broke by it.
func (s *stage) Fatalf(format string, args ...any) {
	s.fail(fmt.Errorf(format, args...))
	runtime.Goexit()
}

// Skipf is Fatalf: there is nothing else to go on with.
func (s *stage) Skipf(format string, args ...any) { s.Fatalf(format, args...) }

func (s *stage) fail(err error) {
	if s.ctx.Err() != nil {
		err = fmt.Errorf("stopped: %w", context.Cause(s.ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = err
	}
}

func (s *stage) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure != nil
}

func (s *stage) cleanUp() {
	for {
		s.mu.Lock()
		last := len(s.cleanups) - 1
		if last < 0 {
			s.mu.Unlock()
			return
		}
		f := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		s.mu.Unlock()
		f()
	}
}

// pause waits, and ends the story when a signal comes.
func (s *stage) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
	if s.ctx.Err() != nil {
		s.Fatalf("stopped")
	}
}

// storyDeadline is how long anything that the story waits for may take.
const storyDeadline = 10 * time.Second

// await polls cond until it returns nil, and fails with the phrase what when it
// does not in time.
func (s *stage) await(what string, cond func() error) {
	deadline := time.Now().Add(storyDeadline)
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("not within %v: %s: %w", storyDeadline, what, err)
		}
		s.pause(10 * time.Millisecond)
	}
}

// must ends the story unless err is nil.
func (s *stage) must(doing string, err error) {
	if err != nil {
		s.Fatalf("%s: %w", doing, err)
	}
}

// claim ends the story unless what it tells is true.
func (s *stage) claim(ok bool, format string, args ...any) {
	if !ok {
		s.Fatalf("not as told: "+format, args...)
	}
}
