package store

import (
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
	attempts int       // since it last worked, those that only a change brought about not counted
	due      time.Time // when to try again
}

// settle takes down what a programmer has done of the services it was given.
func (s *Store) settle(p *programmer, w work, given []string, failures []Failure) {
	p.advance(w, given, failures)
	var news []note
	s.loop.mu.Lock()
	again := make(map[object]struct{}, len(failures))
	now := time.Now()
	for _, f := range failures {
		o := object{f.Service, f.Frontend}
		again[o] = struct{}{}
		if p.failedLocked(o, f.Err, w.now, now, s.retry) {
			news = append(news, note{o, f.Err})
		}
	}
	for _, o := range p.recoveredLocked(given, again) {
		news = append(news, note{o, nil})
	}
	s.loop.mu.Unlock()
	s.report(p, news)
}

// failedLocked notes a failure, and reports whether it is a new one. A retry
// that was due puts the next one further off; a failure that was seen only
// because something else changed does not.
func (p *programmer) failedLocked(o object, err error, began, now time.Time, b backoff) bool {
	f := p.failed[o]
	if f == nil {
		f = &failed{}
		p.failed[o] = f
	}
	news := f.err == nil || f.err.Error() != err.Error()
	f.err = err
	if !f.due.After(began.Add(retrySlack)) {
		f.attempts++
		f.due = now.Add(b.after(f.attempts))
	}
	return news
}

// recoveredLocked forgets, and lists, the failures of the given services that
// did not happen again.
func (p *programmer) recoveredLocked(given []string, again map[object]struct{}) (gone []object) {
	if len(p.failed) == len(again) {
		return nil
	}
	tried := make(map[string]struct{}, len(given))
	for _, name := range given {
		tried[name] = struct{}{}
	}
	for o := range p.failed {
		_, was := tried[o.service]
		if _, still := again[o]; was && !still {
			delete(p.failed, o)
			gone = append(gone, o)
		}
	}
	return gone
}

// note is news of an object for the log: what is wrong, or nil = it works again.
type note struct {
	object
	err error
}

// notesPerRound is how many objects a programmer's part of a round may log.
const notesPerRound = 20

func (s *Store) report(p *programmer, news []note) {
	log := s.log.With("programmer", p.name, "phase", p.phase.String())
	for i, n := range news {
		if i == notesPerRound {
			log.Warn("programming: more news not shown", "objects", len(news)-i)
			return
		}
		attrs := []any{"svc", n.service}
		if !n.whole() {
			attrs = append(attrs, "frontend", n.frontend.String())
		}
		if n.err == nil {
			log.Info("programmed after all", attrs...)
		} else {
			log.Warn("programming failed", append(attrs, "err", n.err)...)
		}
	}
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
