package health

import (
	"net/netip"
	"time"

	"github.com/baton-lb/baton/lb/store"
)

const (
	rampFrom = 10          // percent of its weight that a backend begins with
	rampStep = time.Second // from step to step, the same for all backends
)

// trialPercent is what a backend gets of its weight after an ejection until it has
// answered: if it has vanished without a word, every connection that tries it
// has to wait for a timeout.
const trialPercent = 1

// ramp is how far a backend is that comes back.
type ramp struct {
	began      time.Duration
	percent    uint8         // 0 = it is not ramping
	trialUntil time.Duration // till then it ramps only when it has answered; 0 = it is not on trial
}

// percentAt is how much of its weight a backend gets; 0 = all of it.
func percentAt(elapsed, total time.Duration) uint8 {
	if elapsed >= total {
		return 0
	}
	return uint8(rampFrom + (100-rampFrom)*elapsed/total)
}

// rampReturning ramps backends up that may take new flows now and could not
// before, beside others that could: undrained ones, and those that are new in a
// service that was there. Of the health of these nothing bad is known.
func (c *Checker) rampReturning(s *service, before *store.Service) {
	if before == nil || s.slowStart <= 0 {
		return
	}
	var returning []netip.AddrPort
	stayed := false
	for _, p := range s.published.Pool {
		if !p.TakesNewIfHealthy() {
			continue
		}
		if was, ok := before.Backend(p.Address); ok && was.TakesNewIfHealthy() {
			stayed = true
		} else if b := s.backends[p.Address]; b == nil || !b.told.Unhealthy {
			returning = append(returning, p.Address)
		}
	}
	if !stayed {
		return
	}
	for _, a := range returning {
		b := s.backends[a]
		if b == nil {
			b = s.newBackend(a)
			c.services[s.published.Name] = s
		}
		c.beginRamp(b)
		c.publish(b)
	}
	s.count()
}

// beginRamp begins to ramp a backend up, if that makes a difference.
func (c *Checker) beginRamp(b *backend) {
	s, trial := b.service, b.ejected.trial
	if len(s.published.Pool) < 2 || s.slowStart <= 0 && !trial {
		b.ejected.trial = false
		return
	}
	now := c.now()
	b.ramp = ramp{began: now, percent: percentAt(0, s.slowStart)}
	if trial {
		// By then whoever tries it has an answer, or has given up.
		b.ramp.percent, b.ramp.trialUntil = trialPercent, now+s.published.Timeouts.Connect+rampStep
	}
	c.ramping[b] = struct{}{}
	if !c.step.isSet() {
		c.setAlarm(&c.step, now+rampStep)
	}
}

func (c *Checker) endRamp(b *backend) {
	b.ramp, b.ejected.trial = ramp{}, false
	delete(c.ramping, b)
}

// stepRamps takes all ramps one step further. They go in step with each other, so
// that the store publishes all of them together.
func (c *Checker) stepRamps(*backend) {
	now := c.now()
	for b := range c.ramping {
		if b.ejected.trial && now < b.ramp.trialUntil && b.load.Streak().Failures > 0 {
			continue
		}
		if b.ejected.trial {
			b.ejected.trial, b.ramp.began = false, now
		}
		if b.ramp.percent = percentAt(now-b.ramp.began, b.service.slowStart); b.ramp.percent == 0 {
			c.endRamp(b)
		}
		c.publish(b)
		c.release(b)
	}
	if len(c.ramping) > 0 {
		c.setAlarm(&c.step, now+rampStep)
	}
}
