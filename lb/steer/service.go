package steer

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/steer/program"
	"github.com/baton-lb/baton/lb/store"
)

// service is a service that the program knows. Steer.mu guards it.
type service struct {
	s         *Steer
	id        program.ServiceID
	now       wanted
	told      program.Service
	backends  map[netip.AddrPort]*backend
	pools     map[selection]*pool
	frontends map[lb.FrontendKey]program.Frontend
	sources   map[lb.FrontendKey]sourceSet
	gone      bool // it is not to be steered any more: its last flows are waited for
	weighNext time.Time
}

type backend struct {
	service *service
	told    program.Backend
	wanted  program.Backend // but for how it is reached
	load    *flow.Load      // held
	hidden  int64           // flows without a record that are planned there: see weigh
	gone    bool            // of the service: its last flows are waited for
}

type sourceSet struct {
	id   program.SourcesID
	told []program.Source
}

// ensureService finds what is known of a service, or gives it a number.
func (s *Steer) ensureService(name string) *service {
	if v := s.services[name]; v != nil {
		return v
	}
	v := &service{
		s: s, backends: make(map[netip.AddrPort]*backend), pools: make(map[selection]*pool),
		frontends: make(map[lb.FrontendKey]program.Frontend), sources: make(map[lb.FrontendKey]sourceSet),
	}
	if was, ok := s.left.services[name]; ok {
		v.id, v.told = was.ID, was
		delete(s.left.services, name)
	} else {
		v.id = s.numbers.services.take()
	}
	s.services[name], s.told.services[v.id] = v, v
	s.begin.Do(func() { close(s.begun) })
	return v
}

// tellBackends tells the program of everything that a frontend may lead to.
func (v *service) tellBackends(to *store.Service) error {
	was := v.now.perClient
	v.now = plan(to)
	if was == 0 && v.now.perClient > 0 {
		v.s.flows.countClients(v)
	}
	next := v.now.service
	next.ID = v.id
	if next != v.told {
		if err := v.s.o.Program.SetService(next); err != nil {
			return err
		}
		v.told = next
	}
	var errs []error
	for _, b := range v.now.backends {
		errs = append(errs, v.tellBackend(to, b))
	}
	v.gone = false
	for at, b := range v.backends {
		if v.now.backends[at] == nil {
			b.gone = true
			errs = append(errs, v.stop(b))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err // a pool leads to all of them
	}
	for key, p := range v.now.pools {
		errs = append(errs, v.tellPool(key, p))
	}
	return errors.Join(errs...)
}

// tellBackend tells of one backend. One that takes no new flows is told of before any pool is, so that a choice that
// was made before is passed over.
func (v *service) tellBackend(to *store.Service, b *sched.Backend) error {
	be := v.backends[b.Address]
	if be == nil {
		be = v.newBackend(b.Address)
	}
	be.gone = false
	be.wanted = program.Backend{
		ID: be.told.ID, Service: v.id, Address: b.Address, Limit: uint32(b.MaxConnections),
		Takes: slices.ContainsFunc(to.FrontendSet, func(f *store.Frontend) bool { return f.For(false).Allows(b) || f.For(true).Allows(b) }),
	}
	return v.tell(be)
}

// tell tells of a backend what is wanted of it and how it is reached. One to which there is no way takes no flows until there is.
func (v *service) tell(b *backend) error {
	next := b.wanted
	var err error
	if next.Masked, next.Keep, err = v.s.o.Reach(next.Address.Addr()); err == nil {
		delete(v.s.lost, next.ID)
	} else {
		if !v.s.lost[next.ID] {
			v.s.log.Warn("there is no way to a backend: no flow is steered there", "service", v.now.service.Name, "backend", next.Address, "err", err)
		}
		v.s.lost[next.ID], next.Takes = true, false
	}
	if next == b.told {
		return nil
	}
	if err := v.s.o.Program.SetBackend(next); err != nil {
		return err
	}
	b.told = next
	return nil
}

func (v *service) newBackend(at netip.AddrPort) *backend {
	b := &backend{service: v, load: v.s.o.Registry.Acquire(v.now.service.Name, at)}
	was := v.s.left.backends[at]
	if i := slices.IndexFunc(was, func(b program.Backend) bool { return b.Service == v.id }); i >= 0 {
		b.told = was[i]
		v.s.left.backends[at] = slices.Delete(was, i, i+1)
	} else {
		b.told.ID = v.s.numbers.backends.take()
	}
	v.backends[at], v.s.told.backends[b.told.ID] = b, b
	return b
}

// stop lets a backend take no more flows.
func (v *service) stop(b *backend) error {
	if !b.told.Takes {
		return nil
	}
	next := b.told
	next.Takes = false
	if err := v.s.o.Program.SetBackend(next); err != nil {
		return err
	}
	b.told = next
	return nil
}

func (v *service) tellPool(key selection, w wantedPool) error {
	p := v.pools[key]
	if p == nil {
		p = &pool{service: v, id: v.s.numbers.pools.take()}
		v.pools[key], v.s.told.pools[p.id] = p, p
	}
	next := program.Pool{ID: p.id, Service: v.id, Answer: w.answer, ByAddress: w.byAddress, Absent: w.absent}
	for _, b := range w.scheduler.Consistent() {
		next.Table = append(next.Table, v.backends[b.Address].told.ID)
	}
	for _, b := range w.members {
		next.Members = append(next.Members, v.backends[b.Address].told.ID)
	}
	p.replan(w.scheduler, next.Answer)
	if next.Answer == program.ByPacket && !v.s.asks.Swap(true) {
		close(v.s.asking)
	}
	if !samePool(next, p.told) {
		if err := v.s.o.Program.SetPool(next); err != nil {
			return err
		}
		p.told = next
	}
	_, err := p.look(v.s.o.Program) // the first flow is to find choices
	return err
}

func samePool(a, b program.Pool) bool {
	return a.ID == b.ID && a.Service == b.Service && a.Answer == b.Answer && a.ByAddress == b.ByAddress && a.Absent == b.Absent &&
		slices.Equal(a.Table, b.Table) && slices.Equal(a.Members, b.Members)
}

// tellFrontends tells of the frontends that are wanted, and takes back the others.
func (v *service) tellFrontends() error {
	var errs []error
	for k, w := range v.now.frontends {
		errs = append(errs, v.tellFrontend(k, w))
	}
	for k := range v.frontends {
		if _, ok := v.now.frontends[k]; !ok {
			errs = append(errs, v.dropFrontend(k))
		}
	}
	return errors.Join(errs...)
}

func (v *service) tellFrontend(k lb.FrontendKey, w wantedFrontend) error {
	next := program.Frontend{
		FrontendKey: k, Service: v.id, Outside: v.pools[w.outside].id, Inside: v.pools[w.inside].id, Closed: w.others.Verdict, Keep: w.others.Keep,
	}
	set, had := v.sources[k]
	if len(w.sources) > 0 && !(had && slices.Equal(set.told, w.sources)) {
		if !had {
			set.id = v.s.numbers.sources.take()
		}
		if err := v.s.o.Program.SetSources(set.id, w.sources); err != nil {
			return err
		}
		set.told = w.sources
		v.sources[k] = set
	}
	if len(w.sources) > 0 {
		next.Sources = set.id
	}
	if was, ok := v.frontends[k]; !ok || was != next {
		if err := v.s.o.Program.SetFrontend(next); err != nil {
			return err
		}
		v.frontends[k] = next
	}
	delete(v.s.left.frontends, k)
	if had && len(w.sources) == 0 {
		return v.dropSources(k)
	}
	return nil
}

func (v *service) dropSources(k lb.FrontendKey) error {
	set := v.sources[k]
	if err := v.s.o.Program.SetSources(set.id, nil); err != nil {
		return err
	}
	delete(v.sources, k)
	v.s.numbers.sources.give(set.id)
	return nil
}

func (v *service) dropFrontend(k lb.FrontendKey) error {
	if err := v.s.o.Program.DeleteFrontend(k); err != nil {
		return err
	}
	delete(v.frontends, k)
	if _, ok := v.sources[k]; ok {
		return v.dropSources(k)
	}
	return nil
}

// leave says that a service is not to be steered any more. Its frontends go first: whoever comes then meets the relay.
func (v *service) leave() error {
	v.now, v.gone = wanted{service: v.now.service}, true
	errs := []error{v.tellFrontends()}
	for _, b := range v.backends {
		b.gone = true
		errs = append(errs, v.stop(b))
	}
	return errors.Join(errs...)
}

// tidy forgets pools that no frontend leads to, and backends and, in the end, the service, when their last flow is gone.
func (v *service) tidy() error {
	var errs []error
	for key, p := range v.pools {
		if _, ok := v.now.pools[key]; !ok {
			errs = append(errs, v.dropPool(key, p))
		}
	}
	for at, b := range v.backends {
		if b.gone && !v.s.flows.has(b.told.ID) {
			errs = append(errs, v.dropBackend(at, b))
		}
	}
	if v.gone && len(v.backends) == 0 && len(v.pools) == 0 && len(v.frontends) == 0 {
		errs = append(errs, v.drop())
	}
	return errors.Join(errs...)
}

// waits reports whether something is left that goes with a last flow.
func (v *service) waits() bool {
	if v.s.told.services[v.id] != v {
		return false // it is gone
	}
	if v.gone || len(v.pools) != len(v.now.pools) {
		return true
	}
	for _, b := range v.backends {
		if b.gone {
			return true
		}
	}
	return false
}

func (v *service) dropPool(key selection, p *pool) error {
	p.replan(nil, program.ToStack)
	if err := p.flush(v.s.o.Program); err != nil {
		return err
	}
	if err := v.s.o.Program.DeletePool(p.id); err != nil {
		return err
	}
	delete(v.pools, key)
	delete(v.s.told.pools, p.id)
	v.s.numbers.pools.give(p.id)
	return nil
}

func (v *service) dropBackend(at netip.AddrPort, b *backend) error {
	if err := v.s.o.Program.DeleteBackend(b.told.ID); err != nil {
		return err
	}
	b.unseen(0)
	v.s.o.Registry.Release(b.load)
	delete(v.backends, at)
	delete(v.s.told.backends, b.told.ID)
	delete(v.s.lost, b.told.ID)
	v.s.numbers.backends.give(b.told.ID)
	return nil
}

func (v *service) drop() error {
	if err := v.s.o.Program.DeleteService(v.id); err != nil {
		return err
	}
	delete(v.s.services, v.now.service.Name)
	delete(v.s.told.services, v.id)
	v.s.numbers.services.give(v.id)
	return nil
}

// shortest is the shortest time that a flow of the services may be silent.
func (s *Steer) shortest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	least := time.Minute
	for v := range maps.Values(s.services) {
		t := v.told.Times
		least = min(least, t.Opening, t.Idle, t.HalfClosed, t.UDPIdle)
	}
	return least
}
