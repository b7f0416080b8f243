package health

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

var _ store.Programmer = (*Checker)(nil)

// Program begins to probe what is new and ends to probe what is gone. It does
// not wait for any probe, and nothing can fail.
func (c *Checker) Program(_ context.Context, ch store.Change) []store.Failure {
	c.follow(ch.Services, ch.From.Service, ch.To.Service)
	return nil
}

// lookup finds a service of a snapshot.
type lookup func(service string) (*store.Service, bool)

// follow makes the named services, which were what from says, what to says.
func (c *Checker) follow(names []string, from, to lookup) {
	c.mu.Lock()
	defer c.unlock()
	c.published = to
	var due []*backend
	for _, name := range names {
		if published, ok := to(name); ok {
			before, _ := from(name)
			due = append(due, c.update(before, published)...)
		} else if s := c.services[name]; s != nil {
			for _, b := range s.backends {
				c.drop(b)
			}
			delete(c.services, name)
		}
	}
	c.spread(due)
}

// update returns the backends that are to be probed for the first time, or for
// the first time like this.
func (c *Checker) update(before, published *store.Service) (due []*backend) {
	s := c.services[published.Name]
	if s == nil {
		if s = c.newService(published); s.check != nil {
			c.services[published.Name] = s
		}
	}
	s.published, s.slowStart = published, published.SlowStart()
	news := !s.check.asksLike(published.Health)
	if news {
		s.check = newCheck(published.Health)
	}
	for _, b := range s.backends {
		if !b.listed() {
			c.drop(b)
		}
	}
	if s.check == nil {
		c.stopProbing(s)
	} else {
		due = s.enter(news)
	}
	s.count()
	c.rampReturning(s, before)
	c.settle(s)
	return due
}

func (c *Checker) newService(published *store.Service) *service {
	return &service{
		published: published, check: newCheck(published.Health), slowStart: published.SlowStart(),
		backends: make(map[netip.AddrPort]*backend),
	}
}

// listed reports whether there is still such a backend. One whose state is down
// is as if it were not there.
func (b *backend) listed() bool {
	p, ok := b.service.published.Backend(b.address)
	return ok && p.State != lb.StateDown
}

// enter makes what is missing of the service's backends, and returns it: with
// news of the check, all of them.
func (s *service) enter(news bool) (due []*backend) {
	for _, p := range s.published.Pool {
		if p.State == lb.StateDown {
			continue
		}
		b := s.backends[p.Address]
		if b == nil {
			b = s.newBackend(p.Address)
		} else if !news && (b.probing.busy || b.probing.alarm.isSet()) {
			continue
		}
		if !b.probing.busy {
			due = append(due, b)
		}
	}
	return due
}

func (s *service) newBackend(address netip.AddrPort) *backend {
	b := &backend{service: s, address: address}
	b.probing.alarm = alarm{backend: b, ring: (*Checker).probeDue}
	b.ejected.alarm = alarm{backend: b, ring: (*Checker).ejectionDue}
	s.backends[address] = b
	return b
}

// spread begins to probe: one by one a single backend at once, many of them over
// an interval, so that they do not stay together for ever.
func (c *Checker) spread(due []*backend) {
	now := c.now()
	for _, b := range due {
		window := min(b.service.check.Interval, time.Duration(len(due))*time.Millisecond)
		c.setAlarm(&b.probing.alarm, now+rand.N(window))
	}
}

// stopProbing forgets what probes have said.
func (c *Checker) stopProbing(s *service) {
	for _, b := range s.backends {
		c.alarms.remove(&b.probing.alarm)
		b.probing.down, b.probing.streak = false, 0
		c.publish(b)
		c.release(b)
	}
	if len(s.backends) == 0 {
		delete(c.services, s.published.Name)
	}
}

// drop forgets a backend, and whatever was to be done about it.
func (c *Checker) drop(b *backend) {
	b.gone = true
	c.alarms.remove(&b.probing.alarm)
	c.alarms.remove(&b.ejected.alarm)
	delete(c.ramping, b)
	delete(c.outbox.unsent, b)
	delete(b.service.backends, b.address)
}

// release forgets a backend that is not probed and about which there is nothing
// to remember, and then the service.
func (c *Checker) release(b *backend) {
	s := b.service
	_, unsent := c.outbox.unsent[b]
	if s.check != nil || unsent || b.ejected.alarm.isSet() || b.ramp.percent > 0 {
		return
	}
	c.drop(b)
	if len(s.backends) == 0 {
		delete(c.services, s.published.Name)
	}
}

// settle tells the store again what it has published differently: it forgets the
// verdict about a backend that leaves and comes back between two rounds, and keeps
// it for one whose state is down.
func (c *Checker) settle(s *service) {
	for _, p := range s.published.Pool {
		var want store.Health
		b := s.backends[p.Address]
		if b != nil {
			want = b.told
		}
		if _, unsent := c.outbox.unsent[b]; !unsent && store.HealthOf(p) != want {
			c.store.SetHealth(s.published.Name, p.Address, want)
		}
	}
}
