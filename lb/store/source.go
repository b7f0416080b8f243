package store

import (
	"errors"

	"github.com/baton-lb/baton/lb"
)

// Source is where services come from: a file, an API, a program. A service
// belongs to the source that named it first, and to no other.
//
// What is refused is not kept: the store stays as it was, and a source that
// wants to see it tried again hands it over again.
type Source struct {
	store *Store
	name  string

	synced bool // guarded by store.mu
}

// Source registers a source, or returns the one registered under that name.
// Until Synced is called on every one of them nothing that an earlier process
// left is pruned: register all before Run.
func (s *Store) Source(name string) *Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.sources[name]
	if src == nil {
		src = &Source{store: s, name: name}
		s.sources[name] = src
		s.loop.setSynced(false)
	}
	return src
}

// Name is the source's name, as Service.Source shows it.
func (src *Source) Name() string { return src.name }

// Replace makes services all that the source has: they are added or updated,
// its others are deleted. It is all or nothing: one fault and nothing changes;
// the error then joins a *ServiceError for every fault. Services and what they
// point to must not be changed afterwards. Services that are as they were cost
// a comparison, and are no change.
func (src *Source) Replace(services []lb.Service) error {
	s := src.store
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plan(src.name, len(services))
	listed := p.putAll(services)
	for old := range p.from.Services() {
		if _, ok := listed[old.Name]; !ok {
			p.remove(old)
		}
	}
	return s.apply(p)
}

// Apply adds or updates services and deletes those called gone, all in one
// revision: a frontend may move between any of them. What is refused stays as it
// was and keeps nothing else waiting; the error joins a *ServiceError for every
// fault.
func (src *Source) Apply(services []lb.Service, gone []string) error {
	s := src.store
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plan(src.name, len(services)+len(gone))
	listed := p.putAll(services)
	for _, name := range gone {
		old, ok := p.from.Service(name)
		if _, stays := listed[name]; ok && !stays {
			p.remove(old)
		}
	}
	refused := p.withoutFaults()
	_ = s.apply(p) // which has none any more
	return errors.Join(refused...)
}

// Upsert adds or updates one service. The error joins a *ServiceError for every
// fault; then the service stays as it was.
func (src *Source) Upsert(service lb.Service) error {
	s := src.store
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plan(src.name, 1)
	p.put(0, &service)
	return s.apply(p)
}

// Delete removes one service. One that is absent, or of another source, is left
// alone.
func (src *Source) Delete(name string) {
	s := src.store
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plan(src.name, 0)
	if old, ok := p.from.Service(name); ok {
		p.remove(old)
	}
	_ = s.apply(p) // a removal has no faults
}

// Synced says that the source has handed over all that there was when it
// started. Calling it again does nothing.
func (src *Source) Synced() {
	s := src.store
	s.mu.Lock()
	defer s.mu.Unlock()
	src.synced = true
	for _, other := range s.sources {
		if !other.synced {
			return
		}
	}
	s.loop.setSynced(true)
}

// ServiceError is one fault that made a source's service refused.
type ServiceError struct {
	Index   int    // in the list given to Replace; 0 for Upsert
	Service string // its name
	Err     error  // a *lb.FieldError, or a *lb.NotBuiltError
}

func (e *ServiceError) Error() string {
	if e.Service == "" {
		return "service without a name: " + e.Err.Error()
	}
	return "service \"" + e.Service + "\": " + e.Err.Error()
}

func (e *ServiceError) Unwrap() error { return e.Err }

// eachFault calls do for every fault that Validate has joined.
func eachFault(err error, do func(error)) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		do(err)
		return
	}
	for _, e := range joined.Unwrap() {
		do(e)
	}
}
