package store

import (
	"errors"
	"fmt"
	"slices"

	"github.com/baton-lb/baton/lb"
)

// plan is what one writer wants to change, checked against the snapshot it
// starts from and against itself. Nothing is built before all of it is right.
type plan struct {
	source string
	from   *Snapshot
	faults []error

	puts    []*lb.Service // new or different
	removes []*Service
	touched map[string]int            // by service: its place in the list, removed ones -1
	claims  map[lb.FrontendKey]string // by frontend of puts: the service
}

func (s *Store) plan(source string, size int) *plan {
	return &plan{source: source, from: s.Snapshot(), touched: make(map[string]int, min(size, 64))}
}

func (p *plan) fault(at int, service string, err error) {
	p.faults = append(p.faults, &ServiceError{at, service, err})
}

// put plans to add or update svc, number at of the source's list, unless it is
// there already, and valid because it is.
func (p *plan) put(at int, svc *lb.Service) {
	old, exists := p.from.Service(svc.Name)
	if exists && old.Source != p.source {
		p.fault(at, svc.Name, &lb.FieldError{
			Field: "name", Problem: fmt.Sprintf("source %q has a service called like this already", old.Source),
		})
		return
	}
	if exists && equal(&old.Service, svc) {
		return
	}
	if err := svc.Validate(); err != nil {
		eachFault(err, func(err error) { p.fault(at, svc.Name, err) })
		return
	}
	p.puts = append(p.puts, svc)
	p.touched[svc.Name] = at
}

// putAll plans to add or update services, and returns their names.
func (p *plan) putAll(services []lb.Service) (listed map[string]struct{}) {
	listed = make(map[string]struct{}, len(services))
	for i := range services {
		svc := &services[i]
		if _, twice := listed[svc.Name]; twice {
			p.fault(i, svc.Name, &lb.FieldError{Field: "name", Problem: "another service in the list has the same"})
			continue
		}
		listed[svc.Name] = struct{}{}
		p.put(i, svc)
	}
	return listed
}

// withoutFaults takes out of the plan what is faulty, and returns the faults. A
// service that stays as it was keeps its frontends, so that another may be faulty
// for that: it is over when all of the rest is right.
func (p *plan) withoutFaults() (faults []error) {
	for {
		faults = append(faults, p.faults...)
		p.faults = nil
		if p.check() == nil {
			return faults
		}
		faulty := make(map[string]bool, len(p.faults))
		for _, err := range p.faults {
			if se := (*ServiceError)(nil); errors.As(err, &se) {
				faulty[se.Service] = true
				delete(p.touched, se.Service)
			}
		}
		p.puts = slices.DeleteFunc(p.puts, func(svc *lb.Service) bool { return faulty[svc.Name] })
	}
}

// remove plans to delete svc if it is the source's.
func (p *plan) remove(svc *Service) {
	if svc.Source != p.source {
		return
	}
	p.removes = append(p.removes, svc)
	p.touched[svc.Name] = -1
}

func (p *plan) empty() bool { return len(p.puts) == 0 && len(p.removes) == 0 }

// check finds frontends that two services want: of puts among themselves, or of
// one of them and a service that the plan leaves alone. A frontend may move from
// one touched service to another.
func (p *plan) check() error {
	p.claims = make(map[lb.FrontendKey]string, len(p.puts))
	for _, svc := range p.puts {
		for i := range svc.Frontends {
			eachKey(&svc.Frontends[i], func(hash uint64, k lb.FrontendKey) {
				if owner, taken := p.claim(svc.Name, hash, k); taken {
					p.fault(p.touched[svc.Name], svc.Name, &lb.FieldError{
						Field:   fmt.Sprintf("frontends[%d]", i),
						Problem: fmt.Sprintf("%s belongs to service %q", k, owner),
					})
				}
			})
		}
	}
	return errors.Join(p.faults...)
}

// claim takes a frontend for a service, unless another has it.
func (p *plan) claim(service string, hash uint64, k lb.FrontendKey) (owner string, taken bool) {
	if owner, taken = p.claims[k]; taken {
		return owner, owner != service
	}
	if fe, ok := p.from.frontends.get(hash, k); ok {
		if _, moves := p.touched[fe.Service.Name]; !moves {
			return fe.Service.Name, true
		}
	}
	p.claims[k] = service
	return "", false
}
