package offload

import (
	"errors"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/offload/bpf"
)

// endRequest is a flow that somebody wants to end.
type endRequest struct {
	path *path
	by   flow.By
	why  flow.Reason
}

// End implements flow.Path.
func (p *path) End(by flow.By, why flow.Reason) {
	if !p.o.queueEnd(endRequest{p, by, why}) {
		p.reset(by, why) // it may be in the last steps of its handoff
	}
}

// queueEnd has a flow ended soon. It reports false when nobody will.
func (o *Offloader) queueEnd(e endRequest) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing {
		return false
	}
	o.ends = append(o.ends, e)
	if !o.ending {
		o.ending = true
		o.tasks.Go(o.workEnds)
	}
	return true
}

// workEnds ends flows until there are none left to end.
func (o *Offloader) workEnds() {
	for {
		o.mu.Lock()
		ends := o.ends
		o.ends = nil
		o.ending = len(ends) > 0
		o.mu.Unlock()
		if len(ends) == 0 {
			return
		}
		for _, e := range ends {
			e.path.reset(e.by, e.why)
		}
	}
}

// EndAll resets every TCP flow in the kernel that match wants (nil = all), and
// returns how many. UDP sessions are those of the data path.
func (o *Offloader) EndAll(why flow.Reason, match func(flow.View) bool) int {
	n := 0
	for _, p := range o.allPaths() {
		if p.record == nil || match != nil && !match(p.record.View()) {
			continue
		}
		if p.reset(flow.ByBaton, why) {
			n++
		}
	}
	return n
}

func (o *Offloader) allPaths() []*path {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]*path, 0, len(o.paths))
	for _, p := range o.paths {
		all = append(all, p)
	}
	return all
}

// reset ends the flow, with a reset to both sides, unless it is over.
func (p *path) reset(by flow.By, why flow.Reason) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.deleted {
		return false
	}
	p.resetLocked(by, why)
	p.o.wheel.set(&p.alarm, p.o.now().Add(p.linger))
	return true
}

// resetLocked shuts the flow and tells both peers. From then on the kernel answers
// whatever they send, so a reset that is lost, or that a peer did not believe because
// more of what it was sent is still on its way, is said again.
func (p *path) resetLocked(by flow.By, why flow.Reason) {
	there := p.with(func(f Flow) {
		f.SetGate(bpf.GateReset)
		st := f.State()
		if err := p.sayReset(&st); err != nil {
			p.o.log.Debug("reset flow", "flow", p.note.ID, "err", err)
		}
	})
	if there { // else the next process finds it
		p.finishLocked(by, why, endedLinger)
	}
}

// sayReset sends resets with every number that a peer may expect: a reset is believed
// only with the next one (RFC 5961, section 3.2).
func (p *path) sayReset(st *bpf.FlowState) error {
	c, b := &st.Directions[toBackend], &st.Directions[toClient]
	var errs []error
	for _, seq := range expected(p.note.ToClientNext, p.note.ToClientDelta, b, c) {
		errs = append(errs, p.o.resets.send(p.spec.Frontend, p.spec.Client, seq))
	}
	for _, seq := range expected(p.note.ToBackendNext, p.note.ToBackendDelta, c, b) {
		errs = append(errs, p.o.resets.send(p.spec.Local, p.spec.Backend, seq))
	}
	return errors.Join(errs...)
}

// expected is which number a peer may be waiting for: what it acknowledged last, or
// the end of what it was sent since; there was nothing but what it had before when
// neither is known. sent is the direction to it, said the one from it.
func expected(next, delta uint32, sent, said *bpf.DirectionState) []uint32 {
	var list []uint32
	if said.HasAck {
		list = append(list, said.Ack)
	} else {
		list = append(list, next)
	}
	if end := sent.End + delta; sent.HasEnd && sent.Forwarded && end != list[0] {
		list = append(list, end)
	}
	return list
}
