package steer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/steer/program"
	"github.com/baton-lb/baton/lb/store"
)

// What the program could not be told is no failure of a service: the relay serves it meanwhile. It is tried again.
const againEvery = 5 * time.Second

// whileOpen is a programmer that has nothing to do any more once the program is somebody else's.
func (s *Steer) whileOpen(do func(store.Change)) store.Programmer {
	return programmer(func(_ context.Context, c store.Change) []store.Failure {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			do(c)
		}
		return nil
	})
}

type programmer func(context.Context, store.Change) []store.Failure

func (p programmer) Program(ctx context.Context, c store.Change) []store.Failure { return p(ctx, c) }

// programBackends tells the program what frontends are about to lead to.
func (s *Steer) programBackends(c store.Change) {
	for _, name := range c.Services {
		delete(s.behind, name)
		if to, _ := c.To.Service(name); s.wants(to) {
			s.try(name, to, func(v *service) error { return v.tellBackends(to) })
		}
	}
}

// programFrontends opens and closes frontends.
func (s *Steer) programFrontends(c store.Change) {
	for _, name := range c.Services {
		to, _ := c.To.Service(name)
		switch v := s.services[name]; {
		case v == nil || s.behind[name] != nil:
		case s.wants(to):
			s.try(name, to, (*service).tellFrontends)
		default:
			if err := v.leave(); err != nil {
				s.log.Error("a service is steered that is not to be any more", "service", name, "err", err)
			}
		}
	}
}

// try tells the program of a service; when that cannot be, the relay has it until it can.
func (s *Steer) try(name string, to *store.Service, tell func(*service) error) {
	v := s.ensureService(name)
	err := tell(v)
	if err == nil {
		return
	}
	s.log.Error("a service cannot be steered for now: it is proxied", "service", name, "err", err)
	s.behind[name] = to
	for k := range v.frontends {
		if err := v.dropFrontend(k); err != nil {
			s.log.Error("close steered frontend", "frontend", k, "err", err)
		}
	}
}

// again tries what could not be told.
func (s *Steer) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, to := range s.behind {
		if s.closed {
			return
		}
		delete(s.behind, name)
		s.try(name, to, func(v *service) error {
			if err := v.tellBackends(to); err != nil {
				return err
			}
			return v.tellFrontends()
		})
	}
}

// refreshShare is how many backends are asked anew, each time, how they are reached: routes change.
const refreshShare = 32

// refresh asks of some backends how they are reached, in turn, and of all that could not be.
func (s *Steer) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if len(s.turn) == 0 {
		s.turn = slices.Collect(maps.Keys(s.told.backends))
	}
	n := min(refreshShare, len(s.turn))
	due := s.turn[:n]
	s.turn = s.turn[n:]
	for id := range s.lost {
		due = append(due[:len(due):len(due)], id)
	}
	for _, id := range due {
		if b := s.told.backends[id]; b != nil && !b.gone {
			if err := b.service.tell(b); err != nil {
				s.log.Warn("tell of a steered backend", "backend", b.told.Address, "err", err)
			}
		}
	}
}

// programCleanup ends UDP sessions of backends that are gone, whose clients are to find another one, and forgets what nothing leads
// to. Connections are ended as flows of every path are: by who programs onBackendRemoved.
func (s *Steer) programCleanup(c store.Change) {
	gone := make(map[program.BackendID]bool)
	for _, name := range c.Services {
		if v := s.services[name]; v != nil {
			s.addGone(v, c, gone)
			s.lingering[name] = v
		}
	}
	s.flows.endSessions(gone)
	if c.Synced && s.left.frontends != nil {
		if err := s.dropLeft(); err != nil {
			s.log.Warn("forget what an earlier process has steered", "err", err)
		}
	}
	s.tidyLocked()
}

// tidyLocked forgets what has waited for its last flow. What cannot be done now is tried again.
func (s *Steer) tidyLocked() {
	for name, v := range s.lingering {
		if err := v.tidy(); err != nil {
			s.log.Warn("forget what was steered", "service", name, "err", err)
		} else if !v.waits() {
			delete(s.lingering, name)
		}
	}
}

// addGone adds the backends of a service that sessions are to leave: they are gone or down, or broken while others are well.
func (s *Steer) addGone(v *service, c store.Change, gone map[program.BackendID]bool) {
	to, _ := c.To.Service(v.now.service.Name)
	for at, b := range v.backends {
		now, ok := to.Backend(at)
		if b.gone || !s.wants(to) || !ok || now.State == lb.StateDown || now.Unhealthy && !b.told.Takes {
			gone[b.told.ID] = true
		}
	}
}
