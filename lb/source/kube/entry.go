package kube

import (
	"time"

	"github.com/baton-lb/baton/lb"
)

// entry is all that is known under the name of one Service.
type entry struct {
	key     string
	object  Object   // that has the faults
	service *Service // nil = not known, or gone
	slices  []*Slice // in the order in which they came
	ports   []*port  // of service

	names    []string // of the services that Take has handed out
	triggers []time.Time
	dirty    bool
}

// port is one port of a Service with what it is given of the frontends it asks
// for.
type port struct {
	*Port
	entry   *entry
	service *Service
	keys    []lb.FrontendKey // asked for

	settled   bool    // the following is up to date
	usable    [3]bool // by family: there is an endpoint somewhere
	frontends []lb.Frontend
	faults    []Fault
}

// before orders ports that ask for the same frontend.
func (p *port) before(q *port) bool {
	if c := p.service.compare(q.service); c != 0 {
		return c < 0
	}
	return p.index < q.index
}
