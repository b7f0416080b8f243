package steer

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/baton-lb/baton/internal/clock"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/steer/program"
)

// kernel is a program in plain memory.
type kernel struct {
	t *testing.T

	mu        sync.Mutex // guards what follows
	services  map[program.ServiceID]program.Service
	backends  map[program.BackendID]program.Backend
	pools     map[program.PoolID]program.Pool
	sources   map[program.SourcesID][]program.Source
	frontends map[lb.FrontendKey]program.Frontend
	tickets   map[program.PoolID][]program.BackendID
	used      map[program.PoolID]uint64
	open      map[program.BackendID]int64
	flows     map[program.Ref]program.Flow
	resets    map[program.Ref]bool
	events    func([]program.Event)
	asks      func(program.Ask) program.BackendID
	deaf      bool // events are lost
	full      bool // there is no room for a backend
	turn      int
	tables    int // choices by table
	beats     int
	calls     int // updates
}

var _ program.Program = (*kernel)(nil)

func newKernel(t *testing.T) *kernel {
	return &kernel{
		t: t, services: map[program.ServiceID]program.Service{}, backends: map[program.BackendID]program.Backend{}, pools: map[program.PoolID]program.Pool{},
		sources: map[program.SourcesID][]program.Source{}, frontends: map[lb.FrontendKey]program.Frontend{}, tickets: map[program.PoolID][]program.BackendID{},
		used: map[program.PoolID]uint64{}, open: map[program.BackendID]int64{}, flows: map[program.Ref]program.Flow{}, resets: map[program.Ref]bool{},
	}
}

// update does something to the kernel.
func (k *kernel) update(do func()) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	do()
	return nil
}

// see looks at the kernel.
func (k *kernel) see(look func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	look()
}

// pool is what the frontend at the vip leads clients outside to.
func (k *kernel) pool() (p program.Pool) {
	k.see(func() { p = k.pools[k.frontends[vip].Outside] })
	return p
}

// unused checks that nothing names what is being deleted.
func (k *kernel) unused(what string, used bool) {
	if used {
		k.t.Errorf("%s is deleted and is in use", what)
	}
}

func (k *kernel) SetService(s program.Service) error {
	return k.update(func() { k.services[s.ID] = s })
}

func (k *kernel) DeleteService(id program.ServiceID) error {
	return k.update(func() {
		for _, f := range k.frontends {
			k.unused("service "+k.services[id].Name, f.Service == id)
		}
		delete(k.services, id)
	})
}

func (k *kernel) SetBackend(b program.Backend) (err error) {
	k.see(func() {
		if k.full {
			err = errors.New("there is no room")
		}
	})
	if err != nil {
		return err
	}
	return k.update(func() { k.backends[b.ID] = b })
}

func (k *kernel) DeleteBackend(id program.BackendID) error {
	return k.update(func() {
		k.unused("backend "+k.backends[id].Address.String(), k.open[id] > 0)
		delete(k.backends, id)
	})
}

func (k *kernel) SetPool(p program.Pool) error {
	return k.update(func() {
		for _, id := range slices.Concat(p.Table, p.Members) {
			if _, ok := k.backends[id]; !ok {
				k.t.Errorf("pool %d leads to backend %d, which is not known", p.ID, id)
			}
		}
		k.pools[p.ID] = p
	})
}

func (k *kernel) DeletePool(id program.PoolID) error {
	return k.update(func() {
		for _, f := range k.frontends {
			k.unused(fmt.Sprint("pool ", id), f.Outside == id || f.Inside == id)
		}
		delete(k.pools, id)
		delete(k.tickets, id)
	})
}

func (k *kernel) SetSources(id program.SourcesID, s []program.Source) error {
	return k.update(func() {
		if len(s) == 0 {
			delete(k.sources, id)
			return
		}
		k.sources[id] = s
	})
}

func (k *kernel) SetFrontend(f program.Frontend) error {
	return k.update(func() {
		_, pool := k.pools[f.Outside]
		_, service := k.services[f.Service]
		if !pool || !service {
			k.t.Errorf("frontend %s leads to pool %d of service %d, which is not known", f.FrontendKey, f.Outside, f.Service)
		}
		k.frontends[f.FrontendKey] = f
	})
}

func (k *kernel) DeleteFrontend(key lb.FrontendKey) error {
	return k.update(func() { delete(k.frontends, key) })
}

func (k *kernel) Tickets(id program.PoolID) (uint64, int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.used[id], len(k.tickets[id])
}

func (k *kernel) Refill(id program.PoolID, more []program.BackendID) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := min(len(more), mostWaiting-len(k.tickets[id]))
	k.tickets[id] = append(k.tickets[id], more[:n]...)
	return n, nil
}

func (k *kernel) Flush(id program.PoolID) ([]program.BackendID, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.tickets[id]
	k.tickets[id] = nil
	return was, nil
}

func (k *kernel) Beat() { k.see(func() { k.beats++ }) }

func (k *kernel) Open(id program.BackendID) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open[id]
}

func (k *kernel) Events(f func([]program.Event)) { k.see(func() { k.events = f }) }

func (k *kernel) Walk(since uint64, f func(program.Flow) bool) error {
	k.mu.Lock()
	all := slices.Collect(maps.Values(k.flows))
	k.mu.Unlock()
	for _, v := range all {
		if v.State == program.Closed && v.LastSeen > since {
			continue
		}
		if !f(v) {
			break
		}
	}
	return nil
}

func (k *kernel) Lookup(r program.Ref) (program.Flow, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.flows[r]
	return v, ok
}

func (k *kernel) Delete(flows []program.Flow, alsoBusy bool) (n int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, v := range flows {
		now, ok := k.flows[v.Ref]
		if !ok || now.LastSeen != v.LastSeen && !alsoBusy {
			continue
		}
		if now.State == program.Open || now.State == program.HalfClosed {
			k.open[now.Backend]--
		}
		delete(k.flows, v.Ref)
		n++
	}
	return n, nil
}

func (k *kernel) Reset(r program.Ref) error {
	return k.update(func() {
		v := k.flows[r]
		k.open[v.Backend]--
		v.State, v.Reset = program.Closed, true
		k.flows[r], k.resets[r] = v, true
	})
}

func (k *kernel) Adopted() ([]program.Service, []program.Backend, []program.Pool, []program.Frontend, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.services)), slices.Collect(maps.Values(k.backends)), slices.Collect(maps.Values(k.pools)), slices.Collect(maps.Values(k.frontends)), nil
}

func (k *kernel) TellAll(bool) {}

func (k *kernel) Sessions(id program.ServiceID) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, v := range k.flows {
		if v.Service == id && v.Proto == flow.UDP {
			n++
		}
	}
	return n
}

func (k *kernel) Asks(f func(program.Ask) program.BackendID) error {
	k.see(func() { k.asks = f })
	return nil
}

func (k *kernel) Counts() program.Counts { return program.Counts{} }

func (k *kernel) tell(e program.Event) {
	var f func([]program.Event)
	k.see(func() {
		if !k.deaf {
			f = k.events
		}
	})
	if f != nil {
		f([]program.Event{e})
	}
}

// begin is a client's first packet, and the others up to where the flow is open. It returns the answer that it met where it met none.
func (k *kernel) begin(key lb.FrontendKey, client netip.AddrPort) (program.Ref, program.Answer) {
	k.mu.Lock()
	f, ok := k.frontends[key]
	if !ok {
		k.mu.Unlock()
		return program.Ref{}, program.ToStack
	}
	p := k.pools[f.Outside]
	said := program.NoAnswer
	if ask := k.asks; p.Answer == program.ByPacket && ask != nil {
		k.mu.Unlock()
		said = ask(program.Ask{Proto: key.Proto, Client: client, Frontend: key.Address, Pool: p.ID})
		k.mu.Lock()
	}
	id := said
	switch said {
	case program.NoFlow:
		id = 0
	case program.NoAnswer:
		id = k.chooseLocked(p)
	}
	if id == 0 {
		k.mu.Unlock()
		return program.Ref{}, p.Answer
	}
	now := uint64(clock.Monotonic())
	v := program.Flow{
		Ref: program.Ref{Proto: key.Proto, Client: client, Frontend: key.Address, Born: now}, Service: f.Service, Backend: id, Address: k.backends[id].Address,
		Picked: flow.ByAlgorithm, Local: netip.AddrPortFrom(k.backends[id].Masked, 40000), State: program.Open, LastSeen: now,
	}
	k.flows[v.Ref] = v
	k.open[id]++
	k.mu.Unlock()
	k.tell(program.Event{Kind: program.Opened, Flow: v})
	return v.Ref, p.Answer
}

func (k *kernel) chooseLocked(p program.Pool) program.BackendID {
	if p.Answer == program.ByTicket {
		for len(k.tickets[p.ID]) > 0 {
			id := k.tickets[p.ID][0]
			k.tickets[p.ID] = k.tickets[p.ID][1:]
			k.used[p.ID]++
			if k.backends[id].Takes {
				return id
			}
		}
	}
	if p.Answer < program.ByTicket || len(p.Table) == 0 {
		return 0
	}
	k.turn += 7
	k.tables++
	for i := range p.Table {
		if id := p.Table[(k.turn+i)%len(p.Table)]; k.backends[id].Takes {
			return id
		}
	}
	return 0
}

// end is the last packet of a connection.
func (k *kernel) end(r program.Ref, by flow.By, reset bool) {
	k.mu.Lock()
	v := k.flows[r]
	v.State, v.ClosedBy, v.Reset = program.Closed, by, reset
	k.open[v.Backend]--
	k.flows[r] = v
	k.mu.Unlock()
	k.tell(program.Event{Kind: program.Ended, Flow: v, Told: true, Open: true})
}

// age has a flow been silent since the beginning of time.
func (k *kernel) age(r program.Ref) {
	k.see(func() { v := k.flows[r]; v.LastSeen = 1; k.flows[r] = v })
}
