package store

import (
	"context"
	"maps"
	"slices"
	"time"
)

// work is what one round starts from.
type work struct {
	to          *Snapshot
	changed     map[string]struct{} // services that differ from the last round's snapshot
	due         map[string]struct{} // services with a failed object whose time has come
	synced      bool
	now         time.Time
	programmers []*programmer // in the order of their phases
}

// Round is one pass over all phases.
type Round struct {
	Revision uint64 // of the snapshot programmed
	Services int    // that had changed or were tried again
	Failing  int    // objects that are failed after it
	Start    time.Time
	Duration time.Duration
	Phases   [phaseCount]time.Duration
}

// round programs what has changed and what is due for a retry, phase by phase
// (see Phase for why in this order). A service that fails as a whole is held
// back from the later phases, which would build on what is not there, until a
// retry succeeds. Nothing else waits for it.
func (s *Store) round(ctx context.Context) {
	w := s.loop.take(s)
	r := Round{Revision: w.to.Revision, Start: w.now, Services: len(w.changed)}
	held := make(map[string]struct{})
	for phase := range phaseCount {
		began := time.Now()
		for _, p := range w.programmers {
			if int(p.phase) != phase {
				continue
			}
			s.loop.hold(p, held)
			c, ok := p.change(w, held)
			if !ok {
				continue
			}
			failures := p.Program(ctx, c)
			if ctx.Err() != nil {
				s.loop.giveBack(w) // how far p came is not known
				return
			}
			s.settle(p, w, c.Services, failures)
			r.Services = max(r.Services, len(c.Services))
		}
		s.loop.holdBack(Phase(phase), held)
		r.Phases[phase] = time.Since(began)
	}
	r.Duration = time.Since(r.Start)
	s.loop.finish(w, r)
}

func (l *loop) take(s *Store) work {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := work{
		to: s.Snapshot(), changed: l.changed, due: make(map[string]struct{}),
		synced: l.synced, now: time.Now(),
	}
	l.changed = make(map[string]struct{})
	for _, p := range l.programmers {
		p.dueLocked(w.now.Add(retrySlack), w.due)
		w.programmers = append(w.programmers, p)
	}
	return w
}

// giveBack undoes take when a round was not finished. What was due counts as
// changed: a programmer may have got over a failure for which others wait.
func (l *loop) giveBack(w work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(l.changed, w.changed)
	maps.Copy(l.changed, w.due)
}

// finish notes that everything up to w.to has been programmed once.
func (l *loop) finish(w work, r Round) {
	l.mu.Lock()
	l.done = w.to
	if l.waiting = r.Start; len(l.changed) == 0 {
		l.waiting = time.Time{}
	}
	for _, p := range l.programmers {
		r.Failing += len(p.failed)
	}
	l.failing = r.Failing
	l.advanceLocked()
	var hooks []func(Round)
	if r.Services > 0 {
		l.rounds++
		l.last = r
		hooks = slices.Clone(l.hooks)
	}
	l.mu.Unlock()
	for _, hook := range hooks {
		hook(r)
	}
}
