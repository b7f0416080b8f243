package kube

import (
	"slices"
	"time"

	"github.com/baton-lb/baton/lb"
)

// Changes is what has changed since the last Take. Delete and Upsert belong
// together: a frontend may move from one service to another.
type Changes struct {
	Delete []string // names of services
	Upsert []lb.Service

	// Faults are all that stand now for each object whose faults have changed.
	// Cleared are the objects that had some and have none any more.
	Faults  []Fault
	Cleared []Object

	// Triggers are the times at which what led to these changes happened, as the
	// slices say (endpoints.kubernetes.io/last-change-trigger-time).
	Triggers []time.Time
}

// Take returns what has changed since it was last called.
func (t *Translator) Take() (c Changes) {
	c.Upsert = make([]lb.Service, 0, len(t.dirty))
	for _, e := range t.dirty {
		t.translate(e, &c)
	}
	clear(t.dirty)
	t.dirty = t.dirty[:0]
	for name := range t.touched {
		var list []Fault
		if s := t.slices[name]; s != nil {
			list = s.faults
		}
		t.tell(&c, Object{kindSlice, name.Namespace, name.Name}, list)
	}
	clear(t.touched)
	return c
}

// translate makes the services of an entry, and says which are gone.
func (t *Translator) translate(e *entry, c *Changes) {
	e.dirty = false
	before := e.names
	e.names = make([]string, 0, len(e.ports))
	for _, p := range e.ports {
		backends, usable := t.merge(e, p)
		if !p.settled || p.usable != usable {
			t.settle(p, usable)
		}
		if len(p.frontends) == 0 {
			continue
		}
		s := t.service(p)
		s.Backends = backends
		if port := e.service.healthCheckNodePort; port != 0 {
			s.HealthCheckNodePort, s.HealthCheckName = port, e.service.key
		}
		e.names = append(e.names, s.Name)
		c.Upsert = append(c.Upsert, s)
	}
	for _, name := range before {
		if !slices.Contains(e.names, name) {
			c.Delete = append(c.Delete, name)
		}
	}
	if e.service != nil {
		c.Triggers = append(c.Triggers, e.triggers...)
	}
	e.triggers = nil
	t.tellService(e, c)
	if e.service == nil && len(e.slices) == 0 {
		delete(t.entries, e.key)
	}
}

// tellService says what is wrong with the Service of an entry.
func (t *Translator) tellService(e *entry, c *Changes) {
	var list []Fault
	if e.service != nil {
		list = e.service.faults
		for _, p := range e.ports {
			list = slices.Concat(list, p.faults)
		}
	}
	t.tell(c, e.object, list)
}

// tell notes the faults of an object, if they are not those that stand already.
func (t *Translator) tell(c *Changes, o Object, list []Fault) {
	if slices.Equal(t.standing[o], list) {
		return
	}
	if len(list) == 0 {
		delete(t.standing, o)
		c.Cleared = append(c.Cleared, o)
		return
	}
	t.standing[o] = list
	c.Faults = append(c.Faults, list...)
}
