package store

import (
	"log/slog"
	"math/rand/v2"
	"time"
)

// retrySlack is how much too early a retry may come, so that those that are due
// at about the same time share a round.
const retrySlack = 10 * time.Millisecond

// backoff is the distance between retries: it doubles from min to max, and half
// of each is random, so that objects that failed together do not stay together.
type backoff struct{ min, max time.Duration }

func (b backoff) after(attempt int) time.Duration {
	d := b.min
	for ; attempt > 1 && d < b.max; attempt-- {
		d *= 2
	}
	d = min(d, b.max)
	return d/2 + rand.N(d/2+1)
}

// failed is one failed object.
type failed struct {
	err      error
	attempts int // since it last worked, those that only a change brought about not counted
	since    time.Time
	due      time.Time // when to try again
}

// settle takes down what a programmer has done of the services it was given.
func (s *Store) settle(p *programmer, w work, given []string, failures []Failure) {
	p.advance(w, given, failures)
	now := time.Now()
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	again := make(map[object]struct{}, len(failures))
	for _, f := range failures {
		o := object{f.Service, f.Frontend}
		again[o] = struct{}{}
		s.failedLocked(p, o, f.Err, w.now, now)
	}
	if len(p.failed) == len(again) {
		return
	}
	tried := make(map[string]struct{}, len(given))
	for _, name := range given {
		tried[name] = struct{}{}
	}
	for o, f := range p.failed {
		_, was := tried[o.service]
		if _, still := again[o]; was && !still {
			delete(p.failed, o)
			s.log.Info("programmed after all", p.attrs(o, "after", now.Sub(f.since))...)
		}
	}
}

// failedLocked notes a failure. A retry that was due puts the next one further
// off; a failure that was seen only because something else changed does not.
func (s *Store) failedLocked(p *programmer, o object, err error, began, now time.Time) {
	f := p.failed[o]
	if f == nil {
		f = &failed{since: now}
		p.failed[o] = f
	}
	if f.err == nil || f.err.Error() != err.Error() {
		s.log.Warn("programming failed", p.attrs(o, "err", err)...)
	}
	f.err = err
	if !f.due.After(began.Add(retrySlack)) {
		f.attempts++
		f.due = now.Add(s.retry.after(f.attempts))
	}
}

func (p *programmer) attrs(o object, key string, value any) []any {
	attrs := []any{"programmer", p.name, "phase", p.phase.String(), "svc", o.service}
	if !o.whole() {
		attrs = append(attrs, "frontend", o.frontend.String())
	}
	return append(attrs, slog.Any(key, value))
}

// nextRetry is when the next failed object is due.
func (l *loop) nextRetry() (next time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.programmers {
		for _, f := range p.failed {
			if !ok || f.due.Before(next) {
				next, ok = f.due, true
			}
		}
	}
	return next, ok
}
