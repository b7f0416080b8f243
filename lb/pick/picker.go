package pick

import (
	"net/netip"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/store"
)

// Options configures a Picker. The zero value works.
type Options struct {
	MaxClients int // remembered for each service; 0 = affinity.DefaultMax
}

// Picker chooses backends and remembers clients.
type Picker struct {
	tables tables
}

// New makes a picker that remembers nobody.
func New(o Options) *Picker {
	return &Picker{tables: tables{max: o.MaxClients}}
}

// Request is a flow that needs a backend.
type Request struct {
	Frontend *store.Frontend
	Client   netip.AddrPort
	Inside   bool // the client is one of Frontend.Inside
	Now      time.Time
	Tried    []*sched.Backend // could not be reached for this flow
}

// Choice is a backend and what chose it.
type Choice struct {
	Backend *sched.Backend
	Picked  flow.Picked
}

// Pick chooses a backend. It returns the errors of sched.Scheduler.Pick.
func (p *Picker) Pick(r Request) (Choice, error) {
	if b := p.remembered(r); b != nil {
		return Choice{b, flow.ByAffinity}, nil
	}
	b, err := r.Frontend.For(r.Inside).Pick(sched.Request{Client: r.Client, Tried: r.Tried})
	if err != nil {
		return Choice{}, err
	}
	if len(r.Tried) > 0 {
		return Choice{b, flow.ByRetry}, nil
	}
	return Choice{b, flow.ByAlgorithm}, nil
}

// remembered is the client's own backend if it can take this flow, else nil.
func (p *Picker) remembered(r Request) *sched.Backend {
	svc := r.Frontend.Service
	if svc.Affinity.By == lb.NoAffinity {
		return nil
	}
	t := p.tables.get(svc.Name)
	if t == nil {
		return nil
	}
	addr, ok := t.Get(r.Client.Addr(), r.Now, timeoutOf(svc))
	if !ok {
		return nil
	}
	b, ok := svc.Backend(addr)
	if !ok || !r.Frontend.For(r.Inside).Allows(b) || !r.Frontend.May(b, r.Inside) || b.Full() {
		return nil
	}
	for _, t := range r.Tried {
		if t.Address == addr {
			return nil
		}
	}
	return b
}

// Commit gives the flow to the backend and remembers the client's backend. It
// reports false when the backend is at its limit by now, or the flow has ended:
// nothing has changed then. Committing a choice again refreshes only affinity.
func (p *Picker) Commit(rec *flow.Record, fe *store.Frontend, c Choice, now time.Time) bool {
	ok := rec.Assign(flow.Assignment{
		Backend: c.Backend.Address, Picked: c.Picked, Load: c.Backend.Load, Limit: c.Backend.MaxConnections,
	})
	if ok && fe.Service.Affinity.By != lb.NoAffinity {
		p.tables.set(fe.Service.Name, rec.Key().Client().Addr(), c.Backend.Address, now, timeoutOf(fe.Service))
	}
	return ok
}

func timeoutOf(svc *store.Service) time.Duration {
	if svc.Affinity.Timeout == 0 {
		return lb.DefaultAffinityTimeout
	}
	return svc.Affinity.Timeout
}
