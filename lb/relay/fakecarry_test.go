package relay

import (
	"sync"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/handoff"
)

// fakeCarrier is a way beside a session's socket that no datagram takes: the test
// says what it has carried.
type fakeCarrier struct {
	session handoff.Session
	base    flow.Counters // of the record, when it was made

	mu        sync.Mutex // guards what follows
	counters  flow.Counters
	withdrawn int
}

var _ handoff.Carrier = (*fakeCarrier)(nil)

func (o *fakeOffloader) Carry(s handoff.Session) (handoff.Carrier, flow.NotOffloaded) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	if o.refuse != "" {
		return nil, o.refuse
	}
	v := s.Record.View()
	c := &fakeCarrier{session: s, base: flow.Counters{
		BytesToBackend: v.BytesToBackend, BytesToClient: v.BytesToClient,
		PacketsToBackend: v.PacketsToBackend, PacketsToClient: v.PacketsToClient,
	}}
	o.carriers = append(o.carriers, c)
	return c, ""
}

// keep makes the offloader refuse from now on; "" = no more.
func (o *fakeOffloader) keep(why flow.NotOffloaded) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refuse = why
}

// carries lists the ways so far, and says how often one was asked for.
func (o *fakeOffloader) carries() (all []*fakeCarrier, asked int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]*fakeCarrier(nil), o.carriers...), o.asked
}

func (c *fakeCarrier) Name() flow.PathName { return flow.PathBPF }

func (c *fakeCarrier) Counters() flow.Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counters
}

func (c *fakeCarrier) Withdraw() flow.Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withdrawn++
	return c.counters
}

// carry counts what has gone this way.
func (c *fakeCarrier) carry(n flow.Counters) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counters = c.counters.Add(n)
}

// open reports whether datagrams go this way.
func (c *fakeCarrier) open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.withdrawn == 0
}
