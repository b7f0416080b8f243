package store

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// loop is what Run works on: what has changed since its last round, who is to
// be told, and how that went.
type loop struct {
	wake chan struct{} // has one when there may be something to do

	mu          sync.Mutex // guards what follows
	running     bool
	changed     map[string]struct{} // services that differ from the last round's snapshot
	synced      bool                // every source has delivered
	waiting     time.Time           // since when a change waits to be programmed; zero = none does
	programmers []*programmer       // by phase, then as registered
	advanced    chan struct{}       // closed and renewed when done or running changes
	stopped     bool                // Run has returned
	done        *Snapshot           // of the last round
	rounds      uint64
	failing     int
	last        Round
	hooks       []func(Round)
}

func (l *loop) init(empty *Snapshot) {
	l.wake = make(chan struct{}, 1)
	l.changed = make(map[string]struct{})
	l.advanced = make(chan struct{})
	l.done = empty
}

// publish makes snap the current snapshot. Both happen under the loop's lock,
// so that a round never sees a change without its name.
func (s *Store) publish(snap *Snapshot, changed []string) {
	l := &s.loop
	l.mu.Lock()
	s.snapshot.Store(snap)
	if l.waiting.IsZero() {
		l.waiting = time.Now()
	}
	for _, name := range changed {
		l.changed[name] = struct{}{}
	}
	l.mu.Unlock()
	signal(l.wake)
}

func (l *loop) setSynced(on bool) {
	l.mu.Lock()
	l.synced = on
	l.mu.Unlock()
	signal(l.wake)
}

// Register adds a programmer to a phase; in a phase they are called in the
// order in which they were registered. name stands in the log. One that is
// registered late is given everything there is.
func (s *Store) Register(phase Phase, name string, p Programmer) {
	l := &s.loop
	l.mu.Lock()
	l.programmers = append(l.programmers, newProgrammer(phase, name, p))
	slices.SortStableFunc(l.programmers, func(a, b *programmer) int { return cmp.Compare(a.phase, b.phase) })
	l.mu.Unlock()
	signal(l.wake)
}

// Run programs every change until ctx is done, and then returns nil, or
// ErrRunning. What changes during a round is programmed together in the next
// one. It may be called again.
func (s *Store) Run(ctx context.Context) error {
	if !s.loop.start() {
		return ErrRunning
	}
	defer s.loop.stop()
	var owned sync.WaitGroup
	defer owned.Wait()
	owned.Go(func() { s.serveHealth(ctx) })
	s.serveRounds(ctx)
	return nil
}

func (l *loop) start() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running {
		return false
	}
	l.running, l.stopped = true, false
	return true
}

func (l *loop) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running, l.stopped = false, true
	l.advanceLocked()
}

func (l *loop) advanceLocked() {
	close(l.advanced)
	l.advanced = make(chan struct{})
}

func (s *Store) serveRounds(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.round(ctx)
		if next, ok := s.loop.nextRetry(); ok {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-s.loop.wake:
		case <-timer.C:
		}
	}
}

// serveHealth publishes verdicts as they come. Those that come while it waits
// for the writer's lock are published together.
func (s *Store) serveHealth(ctx context.Context) {
	s.health.serve(true)
	defer s.flushHealth()
	defer s.health.serve(false)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.health.wake:
			s.flushHealth()
		}
	}
}

// Programmed waits until everything up to that revision has been programmed
// once, whether it could be or not: see FrontendStatus and Failures. It returns
// ErrStopped when Run has returned before.
func (s *Store) Programmed(ctx context.Context, revision uint64) error {
	l := &s.loop
	for {
		l.mu.Lock()
		done, stopped, advanced := l.done.Revision >= revision, l.stopped, l.advanced
		l.mu.Unlock()
		switch {
		case done:
			return nil
		case stopped:
			return ErrStopped
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-advanced:
		}
	}
}
