package flow

import "time"

// Attach makes path the one that carries the flow from now on. The counters of
// the path before it are kept. Any path but userspace makes the flow an offloaded
// one; userspace makes it one again that is not. After the flow's end it does
// nothing.
func (r *Record) Attach(name PathName, path Path) {
	if at, handedOff := r.attach(name, path); handedOff {
		r.emit(EventHandedOff, func(e *Event) { e.Path, e.State, e.HandedOffAt = name, Offloaded, at })
	}
}

func (r *Record) attach(name PathName, path Path) (at time.Time, handedOff bool) {
	sh := r.registry.shard(r.id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == Ended {
		return at, false
	}
	r.base, r.path = r.countersLocked(), nil
	if r.pathName != "" && r.pathName != name {
		sh.bookLocked(r)
	}
	r.pathName, r.path = name, path
	switch {
	case name != PathUserspace:
		r.state, r.notOffloaded = Offloaded, ""
		r.handedOffAt = r.registry.now()
	case r.state == Offloaded:
		r.state, r.handedOffAt = Established, time.Time{}
	}
	return r.handedOffAt, name != PathUserspace
}

// HandingOff notes that the flow stands still because it may be handed off. It
// ends with Attach, or with StaysHere.
func (r *Record) HandingOff() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == Established || r.state == HalfClosed {
		r.before, r.state = r.state, HandingOff
	}
}

// StaysHere notes that the flow goes on as before HandingOff.
func (r *Record) StaysHere() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == HandingOff {
		r.state = r.before
	}
}

// NotOffloaded notes why the flow stays in userspace; "" = nothing is known that
// keeps it there. On another path it does nothing.
func (r *Record) NotOffloaded(why NotOffloaded) {
	r.mu.Lock()
	same := r.notOffloaded == why || r.state == Offloaded
	if !same {
		r.notOffloaded = why
	}
	r.mu.Unlock()
	if !same && why != "" {
		r.emit(EventNotOffloaded, func(e *Event) { e.NotOffloaded = why })
	}
}
