package steer

import (
	"errors"
	"net/netip"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/steer/program"
)

// adopt reads what the program has been told by an earlier process. Services and backends keep their numbers, which flows
// have; pools are told anew, under numbers of their own, and the old ones serve until frontends lead to the new ones.
func (s *Steer) adopt() error {
	services, backends, pools, frontends, err := s.o.Program.Adopted()
	if err != nil {
		return err
	}
	s.left = left{
		services: make(map[string]program.Service), backends: make(map[netip.AddrPort][]program.Backend), frontends: make(map[lb.FrontendKey]bool),
	}
	used := struct {
		services map[program.ServiceID]bool
		backends map[program.BackendID]bool
		pools    map[program.PoolID]bool
		sources  map[program.SourcesID]bool
	}{map[program.ServiceID]bool{}, map[program.BackendID]bool{}, map[program.PoolID]bool{}, map[program.SourcesID]bool{}}
	for _, v := range services {
		s.left.services[v.Name], used.services[v.ID] = v, true
	}
	for _, b := range backends {
		s.left.backends[b.Address] = append(s.left.backends[b.Address], b)
		used.backends[b.ID] = true
	}
	for _, p := range pools {
		s.left.pools, used.pools[p.ID] = append(s.left.pools, p.ID), true
	}
	for _, f := range frontends {
		s.left.frontends[f.FrontendKey] = true
		if f.Sources != 0 && !used.sources[f.Sources] {
			s.left.sources, used.sources[f.Sources] = append(s.left.sources, f.Sources), true
		}
	}
	s.numbers.services.took(used.services)
	s.numbers.backends.took(used.backends)
	s.numbers.pools.took(used.pools)
	s.numbers.sources.took(used.sources)
	names := make(map[program.ServiceID]string, len(services))
	for _, v := range services {
		names[v.ID] = v.Name
	}
	if len(services) > 0 {
		s.begin.Do(func() { close(s.begun) })
	}
	return s.flows.adopt(names)
}

// dropLeft takes back what nobody has asked for. A backend that nobody has any more keeps its number until its last flow
// has ended.
func (s *Steer) dropLeft() error {
	var errs []error
	for k := range s.left.frontends {
		if err := s.o.Program.DeleteFrontend(k); err != nil {
			return err // it still leads to the rest
		}
		delete(s.left.frontends, k)
	}
	for _, id := range s.left.sources {
		errs = append(errs, s.o.Program.SetSources(id, nil))
		s.numbers.sources.give(id)
	}
	for _, id := range s.left.pools {
		errs = append(errs, s.o.Program.DeletePool(id))
		s.numbers.pools.give(id)
	}
	s.left.sources, s.left.pools = nil, nil
	for name := range s.left.services {
		v := s.ensureService(name)
		v.now.service.Name, v.gone = name, true
		s.lingering[name] = v
	}
	for at, list := range s.left.backends {
		for _, b := range list {
			errs = append(errs, s.keepLeft(at, b))
		}
	}
	s.left = left{}
	return errors.Join(errs...)
}

// keepLeft waits for the flows of a backend that no service has any more.
func (s *Steer) keepLeft(at netip.AddrPort, was program.Backend) error {
	v := s.told.services[was.Service]
	if v == nil || v.backends[at] != nil {
		s.numbers.backends.give(was.ID)
		return s.o.Program.DeleteBackend(was.ID)
	}
	b := &backend{service: v, load: s.o.Registry.Acquire(v.now.service.Name, at), told: was, gone: true}
	v.backends[at], s.told.backends[was.ID], s.lingering[v.now.service.Name] = b, b, v
	return v.stop(b)
}
