package store

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/baton-lb/baton/lb/sched"
)

// Drain keeps new flows away from the target until Undrain, also when it is
// deleted and comes back in between. Draining it again does nothing. The error
// wraps ErrUnknownTarget when there is no such service or backend now.
func (s *Store) Drain(t Target) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.drained[t]; ok {
		return nil
	}
	services, err := s.Snapshot().match(t)
	if err != nil {
		return fmt.Errorf("drain %s: %w", t, err)
	}
	s.drained[t] = struct{}{}
	s.redrain(services)
	return nil
}

// Undrain takes back Drain of the same target. The error wraps ErrNotDrained
// when it is not drained, or only by a Drain of something else.
func (s *Store) Undrain(t Target) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	services, err := s.Snapshot().match(t)
	if _, ok := s.drained[t]; !ok {
		if err != nil {
			return fmt.Errorf("undrain %s: %w", t, err)
		}
		return fmt.Errorf("undrain %s: %w%s", t, ErrNotDrained, s.drainedBy(t))
	}
	delete(s.drained, t)
	s.redrain(services)
	return nil
}

// Drained lists what is drained, sorted as text.
func (s *Store) Drained() []Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Target, 0, len(s.drained))
	for t := range s.drained {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Target) int { return cmp.Compare(a.String(), b.String()) })
	return all
}

// match lists the services that t concerns.
func (s *Snapshot) match(t Target) ([]*Service, error) {
	if t.Service != "" {
		svc, ok := s.Service(t.Service)
		if !ok {
			return nil, fmt.Errorf("%w service %q", ErrUnknownTarget, t.Service)
		}
		if _, ok := svc.Backend(t.Backend); !ok && t.Backend.IsValid() {
			return nil, fmt.Errorf("%w backend: service %q has none at %s", ErrUnknownTarget, t.Service, t.Backend)
		}
		return []*Service{svc}, nil
	}
	var all []*Service
	for svc := range s.Services() {
		if _, ok := svc.Backend(t.Backend); ok {
			all = append(all, svc)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w backend: no service has one at %s", ErrUnknownTarget, t.Backend)
	}
	return all, nil
}

// redrain publishes services again after a change of Store.drained.
func (s *Store) redrain(services []*Service) {
	tx := s.begin()
	for _, svc := range services {
		if slices.ContainsFunc(svc.Pool, func(b *sched.Backend) bool {
			return b.Drained != s.isDrained(svc.Name, b.Address)
		}) {
			tx.rebuild(svc, nil)
		}
	}
	tx.commit()
}

// isDrained reports whether a backend is drained by whatever target. Store.mu is
// held.
func (s *Store) isDrained(service string, backend netip.AddrPort) bool {
	if len(s.drained) == 0 {
		return false
	}
	for _, t := range [...]Target{{service, netip.AddrPort{}}, {service, backend}, {"", backend}} {
		if _, ok := s.drained[t]; ok {
			return true
		}
	}
	return false
}

// drainedBy says which other targets drain t.
func (s *Store) drainedBy(t Target) string {
	for _, other := range [...]Target{{Service: t.Service}, {Backend: t.Backend}} {
		if _, ok := s.drained[other]; ok {
			return fmt.Sprintf(" by itself: %s is", other)
		}
	}
	return ""
}
