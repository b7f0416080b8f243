package store

import (
	"maps"
	"slices"
	"time"

	"github.com/baton-lb/baton/lb"
)

// programmer is a registered Programmer and how far it has come.
type programmer struct {
	Programmer
	phase Phase
	name  string

	// Of the goroutine that runs the rounds.
	from   *Snapshot           // Change.From of the next round
	behind map[string]struct{} // services that are older in from than in the last round's snapshot
	begun  bool                // it has been called
	synced bool                // it has been told that every source has delivered

	failed map[object]*failed // guarded by loop.mu
}

// object is what can fail on its own.
type object struct {
	service  string
	frontend lb.FrontendKey // zero = the whole service
}

func (o object) whole() bool { return o.frontend == lb.FrontendKey{} }

func newProgrammer(phase Phase, name string, p Programmer) *programmer {
	return &programmer{
		Programmer: p, phase: phase, name: name,
		from: &Snapshot{}, behind: make(map[string]struct{}), failed: make(map[object]*failed),
	}
}

// change is the programmer's part of a round, if it has one.
func (p *programmer) change(w work, held map[string]struct{}) (Change, bool) {
	names := maps.Clone(w.changed)
	if !p.begun {
		for svc := range w.to.Services() {
			names[svc.Name] = struct{}{}
		}
	}
	for name := range w.due {
		if _, ok := p.behind[name]; ok {
			names[name] = struct{}{}
		}
	}
	for name := range held {
		if _, ok := names[name]; ok {
			delete(names, name)
			p.behind[name] = struct{}{}
		}
	}
	news := w.synced && !p.synced
	return Change{p.from, w.to, sortedKeys(names), w.synced}, len(names) > 0 || news
}

// holdBack adds the services that are failed as a whole in a phase.
func (l *loop) holdBack(phase Phase, held map[string]struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.programmers {
		for o := range p.failed {
			if p.phase == phase && o.whole() {
				held[o.service] = struct{}{}
			}
		}
	}
}

// hold forgets the failures of services that an earlier phase holds back: their
// turn comes when that one has got over its own, and not before.
func (l *loop) hold(p *programmer, services map[string]struct{}) {
	if len(services) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := range p.failed {
		if _, ok := services[o.service]; ok {
			delete(p.failed, o)
		}
	}
}

// advance moves from to to, but for the services that stay behind.
func (p *programmer) advance(w work, given []string, failures []Failure) {
	for _, name := range given {
		delete(p.behind, name)
	}
	for _, f := range failures {
		p.behind[f.Service] = struct{}{}
	}
	p.from = w.to.withOld(p.behind, p.from)
	p.begun, p.synced = true, w.synced
}

// withOld is s with the named services as they are in old.
func (s *Snapshot) withOld(names map[string]struct{}, old *Snapshot) *Snapshot {
	if len(names) == 0 {
		return s
	}
	mixed := &Snapshot{Revision: s.Revision, counts: s.counts}
	services, frontends := s.services.edit(), s.frontends.edit()
	for name := range names {
		if svc, ok := s.Service(name); ok {
			services.remove(hashName(name), name)
			leave(frontends, svc)
		}
	}
	for name := range names {
		if svc, ok := old.Service(name); ok {
			enter(services, frontends, svc)
		}
	}
	mixed.services, mixed.frontends = services.table, frontends.table
	return mixed
}

// dueLocked adds the services with an object to retry by then.
func (p *programmer) dueLocked(then time.Time, due map[string]struct{}) {
	for o, f := range p.failed {
		if !f.due.After(then) {
			due[o.service] = struct{}{}
		}
	}
}

func sortedKeys(m map[string]struct{}) []string { return slices.Sorted(maps.Keys(m)) }
