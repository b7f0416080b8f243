package offload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

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

// HandoffAll tries to hand over every flow that was offered, whether or not it is old and
// big enough, until ctx ends. It returns how many it did.
func (o *Offloader) HandoffAll(ctx context.Context) (done int) {
	var waiters []chan verdict
	for _, l := range o.offered() {
		if w := make(chan verdict, 1); o.queue(l, w) {
			waiters = append(waiters, w)
		}
	}
	for _, w := range waiters {
		select {
		case v := <-w:
			if v.result == flow.HandoffDone {
				done++
			}
		case <-ctx.Done():
			return done
		}
	}
	return done
}

// offered lists the leases of flows that are in userspace.
func (o *Offloader) offered() []*lease {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.leases))
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
