package health

import (
	"math/rand/v2"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// probing is what probes have said of a backend:
//
//	up (healthy, as a new one is) -- fall failures in a row --> down
//	down                          -- rise successes in a row --> up
type probing struct {
	alarm  alarm // of the next probe
	busy   bool  // a probe runs, or waits in line
	down   bool
	unable bool   // this host could not ask
	streak int    // answers in a row that speak against down
	reason string // of down
}

// job is one probe.
type job struct {
	backend *backend
	check   *check
	began   time.Duration
}

// lateAfter is how long a probe may wait in line before it counts as late.
const lateAfter = 250 * time.Millisecond

// probeDue runs a probe if there is a place for it.
func (c *Checker) probeDue(b *backend) {
	b.probing.busy = true
	if c.running >= c.limit {
		c.line.push(b)
		return
	}
	c.running++
	j := c.begin(b)
	c.owned.Go(func() { c.work(j) })
}

func (c *Checker) begin(b *backend) job {
	now := c.now()
	if now-b.probing.alarm.at > lateAfter {
		c.counts.Late++
	}
	return job{b, b.service.check, now}
}

// work runs probes until nobody waits in line.
func (c *Checker) work(j job) {
	for more := true; more; {
		j, more = c.finish(j, c.ask(j))
	}
}

// finish takes down the answer, and takes over the next in line.
func (c *Checker) finish(j job, out outcome) (next job, more bool) {
	c.mu.Lock()
	defer c.unlock()
	if c.ctx.Err() != nil {
		return job{}, false // the answer is to having been stopped
	}
	c.counts.probe(j.check.Probe, out.result)
	c.answered(j, out)
	for b := c.line.pop(); b != nil; b = c.line.pop() {
		if !b.gone && b.service.check != nil {
			return c.begin(b), true
		}
		b.probing.busy = false
	}
	c.running--
	return job{}, false
}

func (c *Checker) answered(j job, out outcome) {
	b := j.backend
	b.probing.busy = false
	if b.gone || b.service.check == nil {
		return
	}
	next := c.now()
	if b.service.check == j.check { // else nobody asks that any more
		c.judge(j, out)
		next = max(next, j.began+jitter(j.check.Interval))
	}
	c.setAlarm(&b.probing.alarm, next)
}

// jitter is an interval within a tenth of d.
func jitter(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// judge is rise and fall.
func (c *Checker) judge(j job, out outcome) {
	p, passed := &j.backend.probing, out.result == flow.ProbePassed
	switch {
	case out.result == flow.ProbeLocal:
		c.unable(j, out)
		return
	case passed:
		c.readmit(j.backend, j.began)
	}
	p.unable = false
	if passed != p.down { // as it was
		p.streak = 0
		if p.down {
			p.reason = out.reason(j.check)
			c.publish(j.backend)
		}
		return
	}
	need := j.check.Fall
	if p.down {
		need = j.check.Rise
	}
	if p.streak++; p.streak < need {
		return
	}
	p.streak, p.down = 0, !passed
	if p.down {
		p.reason = out.reason(j.check)
	}
	c.publish(j.backend)
}
