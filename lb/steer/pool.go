package steer

import (
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/steer/program"
)

// pool is a pool that the program knows, and the choices that wait in it. Steer.mu guards it.
type pool struct {
	service *service
	id      program.PoolID
	told    program.Pool

	scheduler *sched.Scheduler // that choices are made by; nil = none are
	asks      *sched.Scheduler // that choices are made by for flows at their first packet; nil = none are
	waiting   []choice         // the next to be used first
	stale     bool             // what waits was chosen out of what was there before
	target    int              // how many are to wait
	active    bool             // it is looked at each time: see fill
	quiet     int              // for so many looks nothing was used
}

// choice is a backend that the next flow gets.
type choice struct {
	id      program.BackendID
	backend *sched.Backend
}

// How many choices wait in a pool: for about two looks' worth of flows. More would be older than they need to be.
const (
	leastWaiting = 16
	mostWaiting  = 256
)

// replan has the pool's choices made by another scheduler, if any are.
func (p *pool) replan(by *sched.Scheduler, answer program.Answer) {
	p.asks = nil
	if answer == program.ByPacket {
		p.asks = by
	}
	if answer != program.ByTicket {
		by = nil
	}
	if by == p.scheduler {
		return
	}
	p.scheduler, p.stale = by, true
	if p.target == 0 {
		p.target = leastWaiting
	}
}

// look takes note of what was used, and fills the pool up. It returns how many choices were used.
func (p *pool) look(to program.Program) (used int, err error) {
	if p.stale {
		if err := p.flush(to); err != nil {
			return 0, err
		}
	}
	if p.scheduler == nil {
		return 0, nil
	}
	_, waiting := to.Tickets(p.id)
	used = max(0, len(p.waiting)-waiting)
	for _, c := range p.waiting[:used] {
		c.plan(-1)
	}
	p.waiting = p.waiting[used:]
	p.aim(used)
	p.service.weigh()
	return used, p.fill(to)
}

// aim sets the target by what was used since the last look.
func (p *pool) aim(used int) {
	switch want := 2 * used; {
	case want > p.target:
		p.target = min(want, mostWaiting)
	case want < p.target/4:
		p.target = max(p.target-p.target/8, leastWaiting)
	}
}

func (c choice) plan(n int64) {
	if c.backend.Load != nil {
		c.backend.Load.Plan(n)
	}
}

// fill makes choices until as many wait as are to.
func (p *pool) fill(to program.Program) error {
	var fresh []choice
	for len(p.waiting)+len(fresh) < p.target {
		b, err := p.scheduler.Pick(sched.Request{})
		if err != nil {
			break // all are full: what comes meets the table, which looks again
		}
		be := p.service.backends[b.Address]
		if be == nil {
			break
		}
		c := choice{be.told.ID, b}
		c.plan(+1) // the next choice has it in view
		fresh = append(fresh, c)
	}
	if len(fresh) == 0 {
		return nil
	}
	ids := make([]program.BackendID, len(fresh))
	for i, c := range fresh {
		ids[i] = c.id
	}
	n, err := to.Refill(p.id, ids)
	for _, c := range fresh[n:] {
		c.plan(-1)
	}
	p.waiting = append(p.waiting, fresh[:n]...)
	return err
}

// flush takes all choices back.
func (p *pool) flush(to program.Program) error {
	if _, err := to.Flush(p.id); err != nil {
		return err
	}
	for _, c := range p.waiting {
		c.plan(-1)
	}
	p.waiting, p.stale = nil, false
	return nil
}
