package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/baton-lb/baton/lb/steer/program"
)

// Adopted is what an earlier process has told and left.
func (s *Steer) Adopted() (services []program.Service, backends []program.Backend, pools []program.Pool, frontends []program.Frontend, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("adopt mode steer: %w", err)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.flows.maps
	err = each(m.SteerServices, func(id uint32, e flowService) error {
		var name flowName
		if err := m.SteerNames.Lookup(id, &name); err != nil {
			return fmt.Errorf("read name of service %d: %w", id, err)
		}
		services = append(services, serviceOf(id, e, name))
		return nil
	})
	if err != nil {
		return
	}
	err = each(m.SteerBackends, func(id uint32, e flowBackend) error {
		backends = append(backends, backendOf(id, e))
		return nil
	})
	if err != nil {
		return
	}
	err = each(m.SteerPools, func(id uint32, e flowPool) error {
		table, err := s.table(id, e.Version, e.Length)
		if err != nil {
			return fmt.Errorf("read table of pool %d: %w", id, err)
		}
		p := program.Pool{
			ID: program.PoolID(id), Service: program.ServiceID(e.Service), Answer: answerOf(e.Answer), Table: table,
			ByAddress: e.ByAddress != 0, Members: s.members[program.PoolID(id)],
		}
		if e.RefuseAbsent != 0 {
			p.Absent = program.RefuseNew
		}
		pools = append(pools, p)
		return nil
	})
	if err != nil {
		return
	}
	err = each(m.SteerFrontends, func(k flowFrontend, e flowEntrance) error {
		frontends = append(frontends, frontendOf(k, e))
		return nil
	})
	return
}

// recall learns what is in the maps that cannot be asked for piece by piece. Sources that no set has are of a process that
// died between.
func (s *Steer) recall() error {
	err := each(s.flows.maps.SteerBackends, func(id uint32, e flowBackend) error {
		s.services.Store(program.BackendID(id), program.ServiceID(e.Service))
		return nil
	})
	if err != nil {
		return err
	}
	err = each(s.flows.maps.SteerMembers, func(k flowMember, _ uint32) error {
		s.members[program.PoolID(k.Pool)] = append(s.members[program.PoolID(k.Pool)], program.BackendID(k.Backend))
		return nil
	})
	if err != nil {
		return err
	}
	keys := make(map[uint32][]flowSource)
	err = each(s.flows.maps.SteerSources, func(k flowSource, _ flowClient) error {
		keys[k.Set] = append(keys[k.Set], k)
		s.lastSet = max(s.lastSet, k.Set)
		return nil
	})
	if err != nil {
		return err
	}
	err = each(s.flows.maps.SteerSets, func(id, number uint32) error {
		s.sets[program.SourcesID(id)] = sourcesOf{number: number, keys: keys[number]}
		delete(keys, number)
		return nil
	})
	if err != nil {
		return err
	}
	for number, left := range keys {
		if err := s.forgetSources(sourcesOf{number: number, keys: left}); err != nil {
			return err
		}
	}
	return nil
}

// each calls f for the entries of a map that nobody changes meanwhile.
func each[K, V any](m *ebpf.Map, f func(K, V) error) error {
	var (
		k       K
		v       V
		entries = m.Iterate()
	)
	for entries.Next(&k, &v) {
		if err := f(k, v); err != nil {
			return err
		}
	}
	return entries.Err()
}
