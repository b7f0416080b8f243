package health

import (
	"time"

	"github.com/baton-lb/baton/lb/store"
)

// sendEvery is how often the store is told anything. Each verdict makes a new
// snapshot, in which a service is built anew with all of its backends: when
// thousands fail at once, they had better share one.
const sendEvery = 20 * time.Millisecond

// outbox is verdicts on their way to the store.
type outbox struct {
	alarm  alarm // when the rest is sent
	last   time.Duration
	unsent map[*backend]struct{}
}

// publish tells the store what is known of a backend, if that is news.
func (c *Checker) publish(b *backend) {
	var h store.Health
	switch {
	case b.probing.down:
		h = store.Health{Unhealthy: true, Reason: b.probing.reason}
	case b.ejected.now:
		h = store.Health{Unhealthy: true, Reason: b.ejected.reason}
	case b.told.Unhealthy:
		c.beginRamp(b)
		fallthrough
	default:
		h.Ramp = b.ramp.percent
	}
	if h.Unhealthy {
		c.endRamp(b)
	}
	if h == b.told {
		return
	}
	was, allWere := b.told, b.service.allIll()
	b.service.add(b, -1)
	b.told = h
	b.service.add(b, 1)
	c.send(b)
	c.tell(b, was, allWere)
}

// send hands the verdict about a backend to the store: at once, or a moment
// later if something was sent just now.
func (c *Checker) send(b *backend) {
	o := &c.outbox
	if now := c.now(); now >= o.last+sendEvery && len(o.unsent) == 0 {
		o.last = now
		c.store.SetHealth(b.service.published.Name, b.address, b.told)
		return
	}
	o.unsent[b] = struct{}{}
	if !o.alarm.isSet() {
		c.setAlarm(&o.alarm, o.last+sendEvery)
	}
}

func (c *Checker) sendAll(*backend) {
	c.outbox.last = c.now()
	for b := range c.outbox.unsent {
		delete(c.outbox.unsent, b)
		c.store.SetHealth(b.service.published.Name, b.address, b.told)
		c.release(b)
	}
}
