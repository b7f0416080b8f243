package steer

import (
	"context"
	"maps"
	"slices"
	"time"
)

const (
	fillEvery = 4 * time.Millisecond
	idleEvery = 50 * time.Millisecond // when no pool is in use
	idleShare = 64                    // pools that are not in use, and are looked at each time
	quietMost = 100                   // looks without a flow, after which a pool counts as not in use
)

// fill keeps choices ready. Pools in use are looked at each time, the others in turn, a few at a time.
func (s *Steer) fill(ctx context.Context) {
	var idle []*pool
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.flows.wake:
		case <-timer.C:
		}
		every := idleEvery
		if s.fillOnce(&idle) {
			every = fillEvery
		}
		timer.Reset(every)
	}
}

// fillOnce reports whether a pool is in use.
func (s *Steer) fillOnce(idle *[]*pool) (busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if len(*idle) == 0 {
		*idle = s.poolsLocked()
	}
	n := min(idleShare, len(*idle))
	for _, p := range (*idle)[:n] {
		s.lookAt(p)
	}
	*idle = (*idle)[n:]
	for _, v := range s.active {
		for _, p := range v.pools {
			s.lookAt(p)
		}
		v.makeRoom()
	}
	maps.DeleteFunc(s.active, func(_ string, v *service) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Values(v.pools)), func(p *pool) bool { return p.active })
	})
	return len(s.active) > 0
}

func (s *Steer) poolsLocked() (all []*pool) {
	for _, v := range s.services {
		for _, p := range v.pools {
			all = append(all, p)
		}
	}
	return all
}

func (s *Steer) lookAt(p *pool) {
	used, err := p.look(s.o.Program)
	if err != nil {
		s.log.Debug("lay choices ready", "service", p.service.now.service.Name, "err", err)
		return
	}
	if used > 0 {
		p.quiet, p.active = 0, true
		s.active[p.service.now.service.Name] = p.service
		return
	}
	if p.quiet++; p.quiet > quietMost {
		p.active = false
	}
}

// touch has a service's pools looked at soon: it has a new flow.
func (s *Steer) touch(v *service) {
	for _, p := range v.pools {
		p.quiet, p.active = 0, true
	}
	s.active[v.now.service.Name] = v
}
