package flow

import (
	"net/netip"
	"time"
)

// Options configures a Registry. The zero value works.
type Options struct {
	EndedKept int              // how many ended flows are remembered; 0 = 1024, less = none
	Now       func() time.Time // nil = time.Now
	// OnEnded, when set, is called for every flow that ends, on the goroutine
	// of its data path: it must not block.
	OnEnded func(*View)
}

// Registry lists every live flow and remembers the last ended ones.
type Registry struct {
	now     func() time.Time
	onEnded func(*View)
	loads   loads
	drops   dropCounts
	dials   dialFailures
	failing chan *Load // see Failing
	hub     hub
	ended   endedRing
	shards  [shardCount]shard
}

// NewRegistry makes an empty registry.
func NewRegistry(o Options) *Registry {
	if o.EndedKept == 0 {
		o.EndedKept = 1024
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Registry{now: o.Now, onEnded: o.OnEnded, ended: endedRing{max: o.EndedKept}}
	r.failing = make(chan *Load, failingBuffer)
	r.hub.drops = &r.drops
	for i := range r.shards {
		s := &r.shards[i]
		s.live = make(map[ID]*Record)
		s.total = make(map[EndedKey]uint64)
		s.bytes = make(map[BytesKey]uint64)
	}
	return r
}

// Open lists a new flow, in state dialing, or an adopted one. Its data path
// attaches itself with Attach, unless the Spec has it, and must call Finish in the
// end.
func (r *Registry) Open(s Spec) *Record {
	if s.ID == 0 {
		s.ID = newID()
	}
	if s.Mode == "" {
		s.Mode = ModeProxy
	}
	if s.StartedAt.IsZero() {
		s.StartedAt = r.now()
	}
	rec := &Record{
		registry: r, id: s.ID, mode: s.Mode, service: s.Service, startedAt: s.StartedAt,
		key: NewKey(s.Proto, s.Client, s.Frontend), state: s.state(), base: s.Counters, booked: s.Counters,
		backend: s.Backend, picked: s.Picked, load: s.Load,
		pathName: s.PathName, path: s.Path, handedOffAt: s.HandedOffAt,
	}
	if s.Load != nil {
		r.loads.opened(s.Load, 0)
	}
	rec.booked = rec.countersLocked() // nobody else knows it yet
	sh := r.shard(s.ID)
	sh.mu.Lock()
	for sh.live[rec.id] != nil { // once in 2^64 pairs
		rec.id += shardCount
	}
	sh.live[rec.id] = rec
	sh.mu.Unlock()
	if s.state() != Dialing {
		return rec
	}
	rec.emit(EventAccepted, func(e *Event) {
		v := &e.about
		e.Mode, e.Protocol, e.Service = v.Mode, v.Protocol, v.Service
		e.Frontend, e.Client, e.State, e.StartedAt = v.Frontend, v.Client, v.State, v.StartedAt
	})
	return rec
}

func (r *Registry) finish(rec *Record, by By, reason Reason) {
	v, whenEnded, ok := r.unlist(rec, by, reason)
	if !ok {
		return
	}
	if whenEnded != nil {
		whenEnded()
	}
	r.ended.add(v)
	if r.onEnded != nil {
		r.onEnded(&v)
	}
	rec.emit(EventEnded, func(e *Event) {
		e.State, e.EndedAt, e.EndedBy, e.Reason, e.LastSeenAt = Ended, v.EndedAt, by, reason, v.LastSeenAt
		e.BytesToBackend, e.BytesToClient = v.BytesToBackend, v.BytesToClient
		e.PacketsToBackend, e.PacketsToClient = v.PacketsToBackend, v.PacketsToClient
	})
}

func (r *Registry) leave(rec *Record) {
	if _, whenEnded, ok := r.unlist(rec, "", ""); ok && whenEnded != nil {
		whenEnded()
	}
}

// unlist takes a flow that is live out of the list, and counts its end unless it has
// none here: by is empty.
func (r *Registry) unlist(rec *Record, by By, reason Reason) (v View, whenEnded func(), ok bool) {
	sh := r.shard(rec.id)
	sh.mu.Lock()
	rec.mu.Lock()
	if rec.state == Ended {
		rec.mu.Unlock()
		sh.mu.Unlock()
		return v, nil, false
	}
	rec.state, rec.endedBy, rec.reason, rec.endedAt = Ended, by, reason, r.now()
	rec.base, rec.path = rec.countersLocked(), nil
	sh.bookLocked(rec)
	load := rec.load
	rec.load = nil
	v, whenEnded = rec.viewLocked(true), rec.whenEnded
	rec.mu.Unlock()
	delete(sh.live, rec.id)
	if by != "" {
		sh.total[EndedKey{v.Service, v.Protocol, v.Path, by, reason}]++
	}
	sh.mu.Unlock()
	if load != nil {
		r.loads.closed(load)
	}
	return v, whenEnded, true
}

// Get finds a live flow.
func (r *Registry) Get(id ID) (*Record, bool) {
	sh := r.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	rec, ok := sh.live[id]
	return rec, ok
}

// Len is the number of live flows.
func (r *Registry) Len() int {
	n := 0
	for i := range r.shards {
		sh := &r.shards[i]
		sh.mu.Lock()
		n += len(sh.live)
		sh.mu.Unlock()
	}
	return n
}

// Records copies the list of live flows, in no order.
func (r *Registry) Records() []*Record {
	var all []*Record
	for i := range r.shards {
		sh := &r.shards[i]
		sh.mu.Lock()
		for _, rec := range sh.live {
			all = append(all, rec)
		}
		sh.mu.Unlock()
	}
	return all
}

// LastEnded copies the flows that ended last, the newest first.
func (r *Registry) LastEnded() []View { return r.ended.views() }

// Subscribe delivers the events of flows that match (nil = all). What does not
// fit into buffer is dropped and counted.
func (r *Registry) Subscribe(match func(*View) bool, buffer int) *Subscription {
	return r.hub.subscribe(match, buffer)
}

// Acquire returns the Load of a backend; Release gives it back.
func (r *Registry) Acquire(service string, backend netip.AddrPort) *Load {
	return r.loads.acquire(service, backend)
}

// Release pays back one Acquire.
func (r *Registry) Release(l *Load) { r.loads.release(l) }

// Drop counts something thrown away before it became a flow.
func (r *Registry) Drop(why Drop) { r.drops.count(why) }

// DropCounts copies the counts of drops, every reason present.
func (r *Registry) DropCounts() map[Drop]uint64 { return r.drops.snapshot() }

// DialFailures copies the counts of failed dials.
func (r *Registry) DialFailures() map[DialFailureKey]uint64 { return r.dials.snapshot() }

// ForgetServices drops the sums of services that keep does not know and that have
// no live flow: names that come and go must not fill memory and metrics for ever.
// A service of that name begins at 0 again.
func (r *Registry) ForgetServices(keep func(service string) bool) {
	live := make(map[string]bool)
	for i := range r.shards {
		r.shards[i].addServices(live)
	}
	for i := range r.shards {
		r.shards[i].forget(func(service string) bool { return !live[service] && !keep(service) })
	}
}

// ForgetDialFailures drops the counts of backends that keep does not know.
func (r *Registry) ForgetDialFailures(keep func(service string, backend netip.AddrPort) bool) {
	r.dials.forget(keep)
}

func (r *Registry) countDialFailure(service string, backend netip.AddrPort, why DialFailure) {
	r.dials.count(DialFailureKey{service, backend, why})
}

// Stats sums all flows. A flow is counted either as live or as ended, never as
// both or neither, and bytes stay with the path that carried them, so totals
// never go back. What an adopted flow carried before is not in them.
func (r *Registry) Stats() Stats {
	st := Stats{
		Active: make(map[ActiveKey]int64),
		Ended:  make(map[EndedKey]uint64),
		Bytes:  make(map[BytesKey]uint64),
	}
	for i := range r.shards {
		r.shards[i].addTo(&st)
	}
	return st
}

func (r *Registry) shard(id ID) *shard { return &r.shards[id%shardCount] }
