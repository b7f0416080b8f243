package offload

import (
	"errors"
	"fmt"

	"github.com/baton-lb/baton/internal/flow"
)

// ErrUnknownFlow says that there is no such flow, or no longer.
var ErrUnknownFlow = errors.New("no such flow")

// Handoff tries to hand one flow over now, whether or not it is old and big enough,
// and holds its data back for that if need be. When it is not done, the reason says
// why, and the error what the kernel said, if that was it.
func (o *Offloader) Handoff(id flow.ID) (flow.HandoffResult, flow.NotOffloaded, error) {
	record, ok := o.Registry.Get(id)
	if !ok {
		return flow.HandoffEnded, flow.NotOffloadedPeerGone, fmt.Errorf("%w: %s", ErrUnknownFlow, id)
	}
	o.mu.Lock()
	l := o.leases[id]
	o.mu.Unlock()
	waiter := make(chan verdict, 1)
	if l == nil || !o.queue(l, waiter) {
		return notQueued(record.View())
	}
	v := <-waiter
	return v.result, v.why, v.err
}

// notQueued is the answer for a flow that cannot be tried.
func notQueued(v flow.View) (flow.HandoffResult, flow.NotOffloaded, error) {
	switch {
	case v.State == flow.Offloaded:
		return flow.HandoffDone, "", nil
	case v.State == flow.Ended:
		return flow.HandoffEnded, flow.NotOffloadedPeerGone, nil
	case v.NotOffloaded != "":
		return flow.HandoffRefused, v.NotOffloaded, nil
	}
	return flow.HandoffRefused, flow.NotOffloadedUnavailable, nil
}

// add makes an offered flow findable.
func (o *Offloader) add(l *lease) {
	o.mu.Lock()
	o.leases[l.record.ID()] = l
	o.mu.Unlock()
}

func (o *Offloader) remove(l *lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if id := l.record.ID(); o.leases[id] == l {
		delete(o.leases, id)
	}
}
