package health

import (
	"fmt"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

const (
	// ejectAfter is how many attempts in a row to reach a backend must fail.
	ejectAfter = 5
	// ejectFirst is how long the first ejection lasts, each further one twice
	// as long as the one before, up to ejectMost.
	ejectFirst = time.Second
	ejectMost  = time.Minute
	// ejectMemory is how long after an ejection the next one is a further one.
	ejectMemory = time.Minute
)

// ejection is what connecting to a backend has said of it:
//
//	in -- fails, and ejectAfter in a row have --> out -- a probe passes --> in
//	                                              out -- time is up --> in, or on trial if connecting timed out
//	on trial -- answers, or does not fail for a while --> in
//	on trial, or in without an answer since -- fails --> out
type ejection struct {
	alarm    alarm // its end, and then the end of the memory of it
	now      bool
	timedOut bool // connecting took its whole time
	trial    bool // it ended because time was up, and whether connecting works is costly to find out
	began    time.Duration
	times    int    // in a row, without an answer between
	answered uint32 // flow.Streak.Answered when it was looked at last
	reason   string
}

// connectFailed looks at a backend that could not be reached.
func (c *Checker) connectFailed(l *flow.Load) {
	streak := l.Streak()
	c.mu.Lock()
	defer c.unlock()
	if b := c.suspect(l, streak); b != nil && !b.ejected.now && b.ejected.earned(streak) {
		b.load = l
		c.eject(b, streak)
	}
}

// suspect finds the backend, or makes it when it is in trouble. It returns nil
// when there is none.
func (c *Checker) suspect(l *flow.Load, streak flow.Streak) *backend {
	s := c.services[l.Service()]
	if s != nil && s.backends[l.Backend()] != nil {
		return s.backends[l.Backend()]
	}
	if streak.Failures < ejectAfter {
		return nil
	}
	if s == nil {
		published, ok := c.published(l.Service())
		if !ok {
			return nil
		}
		s = c.newService(published)
	}
	if b := (&backend{service: s, address: l.Backend()}); !b.listed() {
		return nil
	}
	b := s.newBackend(l.Backend())
	c.services[l.Service()] = s
	s.count()
	return b
}

// earned reports whether the failure that was just told is one too many.
func (e *ejection) earned(s flow.Streak) bool {
	if s.Answered != e.answered {
		e.answered, e.times = s.Answered, 0
	}
	return s.Failures >= ejectAfter
}

// eject takes a backend out, unless there would be too few left: half of those
// that would take new flows if all were healthy, and never the last one.
func (c *Checker) eject(b *backend, streak flow.Streak) {
	s, e := b.service, &b.ejected
	if b.told.Unhealthy {
		return // it gets flows only because all are unhealthy
	}
	if !b.candidate || s.candidates-s.ill < 2 || s.ejected+1 > (s.candidates+1)/2 {
		c.counts.Spared++
		c.setAlarm(&e.alarm, c.now()+ejectMemory)
		return
	}
	e.times++
	d := ejectMost
	if e.times < 7 {
		d = min(d, ejectFirst<<(e.times-1))
	}
	s.add(b, -1)
	e.now, e.began, e.timedOut = true, c.now(), streak.TimedOut
	s.add(b, 1)
	e.reason = fmt.Sprintf("ejected for %s: failed %d times", d, streak.Failures)
	c.counts.Ejections++
	c.setAlarm(&e.alarm, e.began+d)
	c.publish(b)
}

// ejectionDue ends an ejection, or the memory of one.
func (c *Checker) ejectionDue(b *backend) {
	if b.ejected.now {
		c.endEjection(b, b.ejected.timedOut)
		return
	}
	b.ejected.times = 0
	c.release(b)
}

// readmit ends an ejection, or a trial, because a probe passed that began since.
func (c *Checker) readmit(b *backend, began time.Duration) {
	switch {
	case began < b.ejected.began:
	case b.ejected.now:
		c.endEjection(b, false)
	default:
		b.ramp.trialUntil = 0
	}
}

func (c *Checker) endEjection(b *backend, trial bool) {
	b.service.add(b, -1)
	b.ejected.now, b.ejected.trial = false, trial
	b.service.add(b, 1)
	c.setAlarm(&b.ejected.alarm, c.now()+ejectMemory)
	c.publish(b)
}
