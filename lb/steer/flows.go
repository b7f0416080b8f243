package steer

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
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
	byClient  map[clientOf]int // connections of services with a limit on them
}

func (f *flows) init(s *Steer) {
	f.s, f.wake = s, make(chan struct{}, 1)
	f.open, f.byBackend, f.byClient = make(map[program.Ref]*path), make(map[program.BackendID]int), make(map[clientOf]int)
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
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case program.Opened:
			f.begin(&e.Flow, false)
		case program.HalfShut:
			if p := f.get(e.Flow.Ref); p != nil {
				p.saw(e.Flow)
				p.record.HalfClosed(e.Flow.ClosedBy)
			}
		case program.Ended:
			if p := f.get(e.Flow.Ref); p != nil { // else it was ended here, or its beginning was lost
				p.ended(e.Flow)
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
	f.count.Add(1)
	return p
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
	return f.s.o.Program.Walk(func(v program.Flow) bool {
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

// idOf is the id of a flow: the same in the next process.
func idOf(r program.Ref) flow.ID {
	client, frontend := r.Client.Addr().As16(), r.Frontend.Addr().As16()
	b := slices.Concat(client[:], frontend[:])
	b = binary.BigEndian.AppendUint16(b, r.Client.Port())
	b = binary.BigEndian.AppendUint16(b, r.Frontend.Port())
	b = append(b, byte(r.Proto))
	b = binary.BigEndian.AppendUint64(b, r.Born)
	h := fnv.New64a()
	_, _ = h.Write(b) // never fails
	return flow.ID(max(h.Sum64(), 1))
}
