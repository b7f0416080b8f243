package offload

import (
	"sync"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/offload/bpf"
)

// carrier is the way of a UDP session's datagrams beside its socket. There is nothing
// to hand over: while the kernel knows the session it translates its datagrams, and
// else they arrive at the sockets.
type carrier struct {
	// Immutable.
	o    *Offloader
	flow Flow

	mu    sync.Mutex // guards what follows; a leaf
	last  flow.Counters
	ended bool
}

var _ handoff.Carrier = (*carrier)(nil)

// Carry implements handoff.Offloader.
func (o *Offloader) Carry(s handoff.Session) (handoff.Carrier, flow.NotOffloaded) {
	if why := excluded(s.Policy, false); why != "" {
		return nil, why
	}
	if o.left.Load() {
		return nil, flow.NotOffloadedUnavailable
	}
	spec := bpf.FlowSpec{
		Proto: flow.UDP, Client: unmap(s.Client), Frontend: unmap(s.Frontend), Local: unmap(s.Source), Backend: unmap(s.Backend),
	}
	if why := o.whyNotUDP(&spec); why != "" {
		return nil, why
	}
	n := sessionNote(&s, &spec, o)
	spec.Note = n.marshal()
	f, err := o.addFlow(spec, bpf.GateForward)
	if err != nil {
		o.log.Debug("carry session", "flow", s.Record.ID(), "err", err)
		return nil, whyNotAdded(err)
	}
	o.count(1)
	return &carrier{o: o, flow: f}, ""
}

func (o *Offloader) whyNotUDP(s *bpf.FlowSpec) flow.NotOffloaded {
	c, b := s.Client.Addr(), s.Backend.Addr()
	switch {
	case c.IsLoopback() || b.IsLoopback() || c == s.Frontend.Addr():
		return flow.NotOffloadedHostLocal
	case c.Is4() != b.Is4():
		return flow.NotOffloadedUnavailable
	}
	return o.routes.check(c, b)
}

func sessionNote(s *handoff.Session, spec *bpf.FlowSpec, o *Offloader) note {
	v := s.Record.View()
	n := note{
		ID: v.ID, Service: v.Service, Picked: v.Picked, StartedAt: v.StartedAt, HandedOffAt: o.now(),
		Idle: s.Timeouts.UDPIdle,
		Base: flow.Counters{
			BytesToBackend: v.BytesToBackend, BytesToClient: v.BytesToClient,
			PacketsToBackend: v.PacketsToBackend, PacketsToClient: v.PacketsToClient, LastSeen: v.LastSeenAt,
		},
	}
	if v.Frontend != spec.Frontend {
		n.Asked = v.Frontend
	}
	if v.Client != spec.Client {
		n.Client = v.Client
	}
	return n
}

// count notes that the kernel carries more sessions, or fewer.
func (o *Offloader) count(sessions int) {
	o.mu.Lock()
	o.udp += sessions
	o.mu.Unlock()
}

// Name implements handoff.Carrier.
func (c *carrier) Name() flow.PathName { return flow.PathBPF }

// Counters implements handoff.Carrier.
func (c *carrier) Counters() flow.Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readLocked()
	return c.last
}

func (c *carrier) readLocked() {
	c.o.alive.RLock()
	defer c.o.alive.RUnlock()
	if c.ended || c.o.gone {
		return
	}
	st := c.flow.State()
	c.last = countersOf(&st, max(st.Directions[toBackend].At, st.Directions[toClient].At))
}

// Withdraw implements handoff.Carrier.
func (c *carrier) Withdraw() flow.Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return c.last
	}
	c.withdrawLocked()
	c.ended = true
	c.o.count(-1)
	return c.last
}

// withdrawLocked first shuts the way: what was counted then is all.
func (c *carrier) withdrawLocked() {
	c.o.alive.RLock()
	gone := c.o.gone
	if !gone {
		c.flow.SetGate(bpf.GateWatch)
	}
	c.o.alive.RUnlock()
	c.readLocked()
	if gone {
		return
	}
	c.o.alive.RLock()
	defer c.o.alive.RUnlock()
	if c.o.gone {
		return
	}
	if err := c.flow.Delete(); err != nil {
		c.o.log.Warn("withdraw session", "err", err)
	}
}
