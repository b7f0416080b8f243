package steer

import (
	"sync"
	"time"

	"github.com/baton-lb/baton/internal/clock"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/steer/program"
)

// path is one flow that the program carries.
type path struct {
	flows   *flows
	ref     program.Ref
	service program.ServiceID
	// backend is where it goes, for as long as it lives.
	backend program.BackendID
	record  *flow.Record

	counts bool // among its client's connections; flows.mu guards it

	mu     sync.Mutex // guards what follows; a leaf, since records read counters under their own
	last   program.Flow
	lastAt time.Time // when it was read
	over   bool
	silent silence
	half   bool // its record has been told that one side has closed
}

var _ flow.Path = (*path)(nil)

// Where there are many flows, what was read of one is good enough for a while: whoever adds them up asks for each of them, and a look
// at all has read it.
const (
	manyFlows = 4096
	freshFor  = 2 * sweepMost
)

// Counters implements flow.Path.
func (p *path) Counters() flow.Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over && (p.flows.count.Load() < manyFlows || time.Since(p.lastAt) > freshFor) {
		if v, ok := p.flows.s.o.Program.Lookup(p.ref); ok {
			p.sawLocked(v)
		}
		p.lastAt = time.Now()
	}
	return countersOf(&p.last)
}

func countersOf(v *program.Flow) flow.Counters {
	c := v.Counters
	if c.BytesToBackend+c.BytesToClient > 0 {
		c.LastSeen = clock.Wall(time.Duration(v.LastSeen))
	}
	return c
}

// saw keeps what somebody has read.
func (p *path) saw(v program.Flow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.sawLocked(v)
	}
}

func (p *path) sawLocked(v program.Flow) {
	now := time.Now()
	p.silent.look(&p.last, &v, now)
	p.last, p.lastAt = v, now
}

// halfClosed tells the record, once, that one side has closed.
func (p *path) halfClosed(by flow.By) {
	p.mu.Lock()
	told := p.half
	p.half = true
	p.mu.Unlock()
	if !told {
		p.record.HalfClosed(by)
	}
}

// End implements flow.Path.
func (p *path) End(by flow.By, reason flow.Reason) {
	p.flows.noteEnded(p.ref)
	v, ok := p.flows.s.o.Program.Lookup(p.ref)
	if ok && p.ref.Proto == flow.TCP {
		p.flows.s.reset(v)
	} else if ok {
		_, _ = p.flows.s.o.Program.Delete([]program.Flow{v}, true)
	}
	p.finish(v, ok, by, reason)
}

// ended takes the program's word for it.
func (p *path) ended(v program.Flow) {
	by, reason := endOf(&v)
	p.finish(v, true, by, reason)
}

// endOf is how a flow has ended that is over.
func endOf(v *program.Flow) (by flow.By, reason flow.Reason) {
	by, reason = v.ClosedBy, flow.ReasonClosed
	if by == "" {
		by = flow.ByClient
	}
	if v.Reset {
		reason = flow.ReasonReset
	}
	return by, reason
}

// finish closes the record, once.
func (p *path) finish(v program.Flow, known bool, by flow.By, reason flow.Reason) {
	if !p.flows.remove(p) {
		return
	}
	p.mu.Lock()
	if known {
		p.last = v
	}
	p.over = true
	p.mu.Unlock()
	p.record.Finish(by, reason)
}
