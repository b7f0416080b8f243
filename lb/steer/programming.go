package steer

import (
	"context"
	"fmt"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// programBackends tells the program what frontends are about to lead to.
func (s *Steer) programBackends(_ context.Context, c store.Change) (failures []store.Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	for _, name := range c.Services {
		to, _ := c.To.Service(name)
		var err error
		if s.wants(to) {
			err = s.ensureService(name).tellBackends(to)
		} else if v := s.services[name]; v != nil && to != nil {
			v.gone = true // its frontends first
		}
		if err != nil {
			failures = append(failures, store.Failure{Service: name, Err: fmt.Errorf("steer: %w", err)})
		}
	}
	return failures
}

// programFrontends opens and closes frontends.
func (s *Steer) programFrontends(_ context.Context, c store.Change) (failures []store.Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	for _, name := range c.Services {
		v := s.services[name]
		if v == nil {
			continue
		}
		failed := func(k lb.FrontendKey, err error) {
			failures = append(failures, store.Failure{Service: name, Frontend: k, Err: fmt.Errorf("steer: %w", err)})
		}
		if to, _ := c.To.Service(name); !s.wants(to) {
			if err := v.leave(); err != nil {
				failures = append(failures, store.Failure{Service: name, Err: fmt.Errorf("stop to steer: %w", err)})
			}
		}
		v.tellFrontends(failed)
	}
	return failures
}

// programCleanup ends UDP sessions of backends that are gone, whose clients are to find another one, and forgets what nothing leads
// to. Connections are ended as flows of every path are: by who programs onBackendRemoved.
func (s *Steer) programCleanup(_ context.Context, c store.Change) []store.Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	for _, name := range c.Services {
		if v := s.services[name]; v != nil {
			s.moveSessions(v, c)
			s.lingering[name] = v
		}
	}
	if c.Synced && s.left.frontends != nil {
		if err := s.dropLeft(); err != nil {
			s.log.Warn("forget what an earlier process has steered", "err", err)
		}
	}
	s.tidyLocked()
	return nil
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

// moveSessions ends the UDP sessions of a service's backends that are gone or down, or broken while others are well.
func (s *Steer) moveSessions(v *service, c store.Change) {
	to, _ := c.To.Service(v.now.service.Name)
	for at, b := range v.backends {
		if b.gone || !s.wants(to) {
			s.flows.endSessions(b.told.ID)
			continue
		}
		now, ok := to.Backend(at)
		if !ok || now.State == lb.StateDown || now.Unhealthy && !b.told.Takes {
			s.flows.endSessions(b.told.ID)
		}
	}
}
