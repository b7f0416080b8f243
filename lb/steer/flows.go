package steer

import (
	"encoding/binary"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/baton-lb/baton/internal/clock"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/steer/program"
)

// flows are the records of what the program carries.
type flows struct {
	s    *Steer
	wake chan struct{} // has the filler look

	count atomic.Int64 // of open; records ask for it under locks of their own

	adding sync.Mutex // held while a record is made, so that each flow has one; taken before mu

	mu        sync.Mutex // guards what follows; taken after Steer.mu
	open      map[program.Ref]*path
	byBackend map[program.BackendID]int
	byClient  map[clientOf]int              // connections of services with a limit on them
	sessions  map[program.ServiceID][]*path // UDP, in the order in which they began; some of them have ended
	ended     map[program.Ref]time.Time     // here, lately: what the program tells of them is old
}

func (f *flows) init(s *Steer) {
	f.s, f.wake = s, make(chan struct{}, 1)
	f.open, f.byBackend, f.byClient = make(map[program.Ref]*path), make(map[program.BackendID]int), make(map[clientOf]int)
	f.sessions = make(map[program.ServiceID][]*path)
	f.ended = make(map[program.Ref]time.Time)
}

func (f *flows) all() []*path {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]*path, 0, len(f.open))
	for _, p := range f.open {
		list = append(list, p)
	}
	return list
}

// has reports whether a backend has flows.
func (f *flows) has(b program.BackendID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byBackend[b] > 0 || f.s.o.Program.Open(b) > 0
}

// happened takes what the program tells.
func (f *flows) happened(events []program.Event) {
	if f.s.isClosed() {
		return
	}
	now := clock.Read()
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case program.Opened:
			f.begin(&e.Flow, false)
		case program.HalfShut:
			if p := f.get(e.Flow.Ref); p != nil {
				p.saw(e.Flow)
				p.halfClosed(e.Flow.ClosedBy)
			}
		case program.Failed:
			f.failed(&e.Flow)
		case program.Ended:
			if p := f.get(e.Flow.Ref); p != nil {
				p.ended(e.Flow)
			} else if !e.Told && !f.wasEnded(e.Flow.Ref) { // else it was ended here, or its beginning was lost
				f.passed(e, now)
			}
		}
	}
}

func (f *flows) get(r program.Ref) *path {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[r]
}

// owner finds the names of a flow's numbers; nil = they are nobody's.
func (s *Steer) owner(v *program.Flow) *backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.told.backends[v.Backend]
	if b == nil || len(b.service.pools) == 0 {
		return b
	}
	if _, ok := s.active[b.service.told.Name]; !ok {
		s.touch(b.service)
		select {
		case s.flows.wake <- struct{}{}:
		default:
		}
	}
	return b
}

// begin makes a flow's record; nil = there is one, or it is nobody's.
func (f *flows) begin(v *program.Flow, adopted bool) *path {
	b := f.s.owner(v)
	if b == nil {
		return nil
	}
	p := f.add(v, b.service.told.Name, b.load, adopted)
	f.s.settle(p, b.service)
	return p
}

// add makes a flow's record, and has it found when it is whole.
func (f *flows) add(v *program.Flow, service string, load *flow.Load, adopted bool) *path {
	f.adding.Lock()
	defer f.adding.Unlock()
	if f.get(v.Ref) != nil {
		return nil
	}
	p := &path{flows: f, ref: v.Ref, service: v.Service, backend: v.Backend, last: *v, lastAt: time.Now()}
	spec := flow.Spec{
		Mode: flow.ModeSteer, Proto: v.Proto, Service: service, Frontend: v.Frontend, Client: v.Client,
		ID: idOf(v.Ref), StartedAt: clock.Wall(time.Duration(v.Born)),
	}
	if adopted {
		spec.Backend, spec.Picked, spec.Load, spec.PathName, spec.Path = v.Address, v.Picked, load, flow.PathBPF, p
		p.record = f.s.o.Registry.Open(spec)
		p.record.SeenAs(seenAs(v))
	} else {
		p.record = f.s.o.Registry.Open(spec)
		p.record.Assign(flow.Assignment{Backend: v.Address, Picked: v.Picked, Load: load})
		p.record.SeenAs(seenAs(v))
		p.record.Dialled()
		p.record.Attach(flow.PathBPF, p)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[v.Ref] = p
	f.byBackend[v.Backend]++
	if v.Proto == flow.UDP {
		f.sessions[v.Service] = append(f.sessions[v.Service], p)
	}
	f.count.Add(1)
	return p
}

// passed enters a flow that has come and gone. If anybody listens it has all its steps.
func (f *flows) passed(e *program.Event, now clock.Reading) {
	v := &e.Flow
	b := f.s.owner(v)
	switch {
	case b == nil:
		return
	case e.Open && f.s.o.Registry.Listened():
		if p := f.begin(v, false); p != nil {
			p.ended(*v)
		}
		return
	}
	if f.s.asks.Load() {
		f.s.begunNow(v.Ref)
	}
	if !e.Open { // its backend has refused it, or its client has thought better of it
		if v.ClosedBy == flow.ByBackend {
			f.s.o.Registry.DialFailed(b.load, flow.DialRefused)
		}
		return
	}
	by, reason := endOf(v)
	c := v.Counters
	c.LastSeen = now.Wall(time.Duration(v.LastSeen))
	seen, why := seenAs(v)
	f.s.o.Registry.Past(flow.Spec{
		Mode: flow.ModeSteer, Proto: v.Proto, Service: b.service.told.Name, Frontend: v.Frontend, Client: v.Client,
		ID: idOf(v.Ref), StartedAt: now.Wall(time.Duration(v.Born)), Counters: c, Backend: v.Address, Picked: v.Picked, Load: b.load, PathName: flow.PathBPF,
	}, flow.End{At: now.Wall(time.Duration(e.At)), By: by, Reason: reason, ClientAddress: seen, NotTransparent: why})
}

// failed counts against a backend that it was not reached. A session then ends, so that its client's next datagram finds another one.
func (f *flows) failed(v *program.Flow) {
	b := f.s.owner(v)
	if b == nil {
		return
	}
	p := f.get(v.Ref)
	if p == nil {
		f.s.o.Registry.DialFailed(b.load, flow.DialUnreachable)
		return
	}
	p.record.DialFailed(flow.DialRefused)
	p.End(flow.ByBackend, flow.ReasonDialFailed)
}

// noteEnded remembers a flow that was ended here: the program may have told of it before.
func (f *flows) noteEnded(r program.Ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended[r] = time.Now()
}

func (f *flows) wasEnded(r program.Ref) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.ended[r]
	return ok
}

// forgetEnded is for when everything has been read that was told so long ago.
func (f *flows) forgetEnded(before time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.ended, func(_ program.Ref, at time.Time) bool { return at.Before(before) })
}

// remove forgets a flow whose record has ended.
func (f *flows) remove(p *path) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[p.ref] != p {
		return false
	}
	delete(f.open, p.ref)
	f.count.Add(-1)
	if p.counts {
		f.countClient(p, -1)
	}
	if f.byBackend[p.backend]--; f.byBackend[p.backend] == 0 {
		delete(f.byBackend, p.backend)
	}
	return true
}

// settle has a flow counted among its client's, from its beginning on, where there is a limit.
func (s *Steer) settle(p *path, v *service) {
	if p == nil || !s.asks.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.now.perClient > 0 && p.ref.Proto == flow.TCP {
		s.flows.mu.Lock()
		if s.flows.open[p.ref] == p && !p.counts {
			s.flows.countClient(p, +1)
		}
		s.flows.mu.Unlock()
	}
	s.begunLocked(p.ref)
}

// countClients counts all connections that a service has, by client.
func (f *flows) countClients(v *service) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.open {
		if p.ref.Proto == flow.TCP && !p.counts && p.service == v.id {
			f.countClient(p, +1)
		}
	}
}

func (f *flows) countClient(p *path, n int) {
	who := clientOf{p.service, p.ref.Client.Addr()}
	p.counts = n > 0
	if f.byClient[who] += n; f.byClient[who] <= 0 {
		delete(f.byClient, who)
	}
}

// of is how many connections a client has that are counted.
func (f *flows) of(who clientOf) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byClient[who]
}

// endSessions ends the UDP sessions of backends: the next datagram of each chooses anew.
func (f *flows) endSessions(gone map[program.BackendID]bool) {
	if len(gone) == 0 {
		return
	}
	for _, p := range f.all() {
		if gone[p.backend] && p.ref.Proto == flow.UDP {
			p.End(flow.ByBaton, flow.ReasonBackendRemoved)
		}
	}
}

// adopt makes records of what an earlier process has left. The names of its numbers are told.
func (f *flows) adopt(names map[program.ServiceID]string) error {
	return f.s.o.Program.Walk(0, func(v program.Flow) bool {
		if name := names[v.Service]; name != "" && (v.State == program.Open || v.State == program.HalfClosed) {
			load := f.s.o.Registry.Acquire(name, v.Address)
			f.add(&v, name, load, true)
			f.s.o.Registry.Release(load)
		}
		return true
	})
}

// seenAs is which address of the client a backend sees.
func seenAs(v *program.Flow) (flow.ClientAddress, flow.NotTransparent) {
	switch {
	case v.Local == v.Client:
		return flow.ClientTransparent, ""
	case v.Local.Addr() == v.Client.Addr():
		return flow.ClientPortChanged, ""
	case v.Client.Addr() == v.Address.Addr():
		return flow.ClientMasked, flow.NotTransparentHairpin
	}
	return "", ""
}

// idOf is the id of a flow: the same in the next process. (FNV-1a, 64 bits.)
func idOf(r program.Ref) flow.ID {
	const offset, prime = 14695981039346656037, 1099511628211
	var b [45]byte
	client, frontend := r.Client.Addr().As16(), r.Frontend.Addr().As16()
	copy(b[:], client[:])
	copy(b[16:], frontend[:])
	binary.BigEndian.PutUint16(b[32:], r.Client.Port())
	binary.BigEndian.PutUint16(b[34:], r.Frontend.Port())
	b[36] = byte(r.Proto)
	binary.BigEndian.PutUint64(b[37:], r.Born)
	h := uint64(offset)
	for _, c := range b {
		h = (h ^ uint64(c)) * prime
	}
	return flow.ID(max(h, 1))
}
