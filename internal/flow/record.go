package flow

import (
	"net/netip"
	"sync"
	"time"
)

// Record is one live flow, on whatever path. Its data path tells it what
// happens; everybody else reads a View.
type Record struct {
	registry *Registry

	// Immutable.
	id        ID
	mode      Mode
	key       Key
	service   string
	startedAt time.Time

	mu           sync.Mutex // guards what follows
	load         *Load
	backend      netip.AddrPort
	pathName     PathName
	path         Path
	base         Counters // of earlier paths
	booked       Counters // of base: what the registry's sums have already
	state        State
	before       State // handing-off: what it was, and may become again
	picked       Picked
	handedOffAt  time.Time
	endedAt      time.Time
	endedBy      By
	reason       Reason
	notOffloaded NotOffloaded
	seenAs       ClientAddress
	notSeenAs    NotTransparent
	whenEnded    func()
}

// ID is the flow's name.
func (r *Record) ID() ID { return r.id }

// Key is the flow's client leg.
func (r *Record) Key() Key { return r.key }

// Service is the name of the flow's service.
func (r *Record) Service() string { return r.service }

// StartedAt is when the flow began.
func (r *Record) StartedAt() time.Time { return r.startedAt }

// Backend is the backend chosen last, or the zero value.
func (r *Record) Backend() netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.backend
}

// Assignment is the choice of a backend for a flow.
type Assignment struct {
	Backend netip.AddrPort
	Picked  Picked
	Load    *Load // of this service and backend; nil = not counted
	Limit   int   // the backend's maxConnections; 0 = none
}

// Assign gives the flow to a backend, and takes it from the one it had. It
// reports false, and changes nothing, when the new one is at its limit or the
// flow has ended. Giving it to the backend that it has changes nothing.
func (r *Record) Assign(a Assignment) bool {
	old, ok, changed := r.assign(a)
	if old != nil {
		r.registry.loads.closed(old)
	}
	if changed {
		r.emit(EventPicked, func(e *Event) { e.Backend, e.Picked = a.Backend, a.Picked })
	}
	return ok
}

func (r *Record) assign(a Assignment) (old *Load, ok, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.state == Ended:
		return nil, false, false
	case r.load == a.Load && r.backend == a.Backend:
		return nil, true, false
	case a.Load != nil && a.Load != r.load && !r.registry.loads.opened(a.Load, a.Limit):
		return nil, false, false
	}
	if old = r.load; old == a.Load {
		old = nil
	}
	r.load, r.backend, r.picked = a.Load, a.Backend, a.Picked
	return old, true, true
}

// SeenAs notes which address of the client the backend sees, and why it is not
// the client's own: before Dialled, and only where a service asks to keep it.
func (r *Record) SeenAs(what ClientAddress, why NotTransparent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seenAs, r.notSeenAs = what, why
}

// Dialled notes that the backend has answered, with UDP that there is a socket
// to it: the flow is established.
func (r *Record) Dialled() {
	r.setState(Established)
	if r.key.Proto() != UDP {
		r.backendAnswered()
	}
	r.emit(EventDialled, func(e *Event) {
		e.Backend, e.State = e.about.Backend, Established
		e.ClientAddress, e.NotTransparent = e.about.ClientAddress, e.about.NotTransparent
	})
}

// backendAnswered ends the backend's run of failures.
func (r *Record) backendAnswered() {
	r.mu.Lock()
	load := r.load
	r.mu.Unlock()
	if load != nil {
		load.streak.answered()
	}
}

// DialFailed notes that the backend could not be reached, and counts it
// against the backend unless it was this host's own fault.
func (r *Record) DialFailed(why DialFailure) {
	r.mu.Lock()
	load, backend := r.load, r.backend
	r.mu.Unlock()
	if load != nil && !why.Local() {
		r.registry.failed(load, why)
	}
	r.registry.countDialFailure(r.service, backend, why)
	r.emit(EventDialFailed, func(e *Event) { e.Backend, e.DialFailure = backend, why })
}

// FirstByte notes the first payload byte, and who sent it.
func (r *Record) FirstByte(from By) {
	if from == ByBackend && r.key.Proto() == UDP {
		r.backendAnswered()
	}
	r.emit(EventFirstByte, func(e *Event) { e.From = from })
}

// HalfClosed notes that one side has closed its direction. An offloaded flow
// stays offloaded.
func (r *Record) HalfClosed(from By) {
	r.mu.Lock()
	if r.state != Ended && r.state != Offloaded {
		r.state = HalfClosed
	}
	state := r.state
	r.mu.Unlock()
	r.emit(EventHalfClosed, func(e *Event) { e.State, e.From = state, from })
}

// End asks the path that carries the flow to end it, on whatever path it is.
// It reports false when the flow has ended already.
func (r *Record) End(by By, reason Reason) bool {
	r.mu.Lock()
	path, ended := r.path, r.state == Ended
	r.mu.Unlock()
	if ended || path == nil {
		return false
	}
	path.End(by, reason)
	return true
}

// WhenEnded has f called once when the flow ends, on whatever path, by the
// goroutine of that path: it must not block. More than one may be told, the last to
// ask first; who asks after the end is told at once.
func (r *Record) WhenEnded(f func()) {
	if !r.tellEnd(f) {
		f()
	}
}

func (r *Record) tellEnd(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == Ended {
		return false
	}
	if before := r.whenEnded; before != nil {
		r.whenEnded = func() { f(); before() }
	} else {
		r.whenEnded = f
	}
	return true
}

// Finish closes the record: the flow has ended, the counters are final. Only
// the path that carried the flow calls it. Later calls do nothing.
func (r *Record) Finish(by By, reason Reason) { r.registry.finish(r, by, reason) }

// Leave takes the record out of the registry: the flow goes on, and is another
// process's from now on. It has no end here, only what it has carried until now. Whoever
// waits for its end is told.
func (r *Record) Leave() { r.registry.leave(r) }

// View copies the record.
func (r *Record) View() View {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.viewLocked(true)
}

func (r *Record) setState(s State) {
	r.mu.Lock()
	if r.state != Ended {
		r.state = s
	}
	r.mu.Unlock()
}

func (r *Record) countersLocked() Counters {
	if r.path == nil {
		return r.base
	}
	return r.base.Add(r.path.Counters())
}

// unbookedLocked is the payload that the registry's sums do not have yet.
func (r *Record) unbookedLocked() (toBackend, toClient uint64) {
	c := r.countersLocked()
	return c.BytesToBackend - r.booked.BytesToBackend, c.BytesToClient - r.booked.BytesToClient
}

func (r *Record) viewLocked(counters bool) View {
	v := View{
		ID:           r.id,
		Mode:         r.mode,
		Protocol:     r.key.Proto(),
		Service:      r.service,
		Frontend:     r.key.Frontend(),
		Client:       r.key.Client(),
		Backend:      r.backend,
		Path:         r.pathName,
		State:        r.state,
		Picked:       r.picked,
		StartedAt:    r.startedAt,
		HandedOffAt:  r.handedOffAt,
		EndedAt:      r.endedAt,
		EndedBy:      r.endedBy,
		Reason:       r.reason,
		NotOffloaded: r.notOffloaded,

		ClientAddress:  r.seenAs,
		NotTransparent: r.notSeenAs,
	}
	if !counters {
		return v
	}
	c := r.countersLocked()
	v.LastSeenAt = c.LastSeen
	v.BytesToBackend, v.BytesToClient = c.BytesToBackend, c.BytesToClient
	v.PacketsToBackend, v.PacketsToClient = c.PacketsToBackend, c.PacketsToClient
	return v
}

// emit publishes an event about the flow when anybody listens.
func (r *Record) emit(name EventName, set func(*Event)) {
	h := &r.registry.hub
	if !h.listening() {
		return
	}
	r.mu.Lock()
	about := r.viewLocked(name == EventEnded)
	r.mu.Unlock()
	e := Event{Time: r.registry.now(), Flow: r.id, Event: name, about: about}
	set(&e)
	h.publish(e)
}
