package pick

import (
	"context"
	"time"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

var _ store.Programmer = (*Picker)(nil)

// Program forgets the clients of services that are gone or have no affinity any
// more. It is for store.Cleanup: until the frontends are programmed, flows may
// still begin. A change of backends forgets nobody.
func (p *Picker) Program(_ context.Context, c store.Change) []store.Failure {
	for _, name := range c.Services {
		if svc, ok := c.To.Service(name); !ok || svc.Affinity.By == lb.NoAffinity {
			p.tables.drop(name)
		}
	}
	return nil
}

// Expire forgets clients whose last new flow is longer ago than their service's
// timeout, and returns how many. Pick never uses those; calling this once a
// minute gives their memory back.
func (p *Picker) Expire(now time.Time) int {
	n := 0
	for _, name := range p.tables.names() {
		t := p.tables.get(name)
		if t == nil {
			continue
		}
		n += t.Expire(now, time.Duration(t.timeout.Load()))
		// This is also the end of a table that a flow made while its service
		// was being removed.
		p.tables.dropEmpty(name)
	}
	return n
}

// Entries is how many clients of a service are remembered.
func (p *Picker) Entries(service string) int {
	if t := p.tables.get(service); t != nil {
		return t.Len()
	}
	return 0
}

// Evicted is how many clients of a service were forgotten to make room, since
// its table was made.
func (p *Picker) Evicted(service string) uint64 {
	if t := p.tables.get(service); t != nil {
		return t.Evicted()
	}
	return 0
}
