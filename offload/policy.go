package offload

import (
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// excluded says why the policy keeps a flow in userspace; "" = it does not.
func excluded(p lb.Offload, terminated bool) flow.NotOffloaded {
	switch {
	case p.Mode == lb.OffloadNever:
		return flow.NotOffloadedNever
	case p.Path == lb.OffloadPathFlowtable && terminated:
		return flow.NotOffloadedTerminated
	case p.Path == lb.OffloadPathFlowtable:
		return flow.NotOffloadedUnavailable
	}
	return ""
}

// look decides whether the time has come for a flow that waits.
func (l *lease) look(now time.Time) {
	v := l.record.View()
	age, moved := now.Sub(v.StartedAt), int64(v.BytesToBackend+v.BytesToClient)
	l.mu.Lock()
	waiting, tried := l.state == leaseWaiting, l.tries > 0
	l.mu.Unlock()
	switch {
	case !waiting:
	case tried || age >= l.policy.AfterAge && moved >= l.policy.AfterBytes:
		l.o.queue(l, nil)
	default:
		l.o.wheel.set(&l.alarm, now.Add(untilNextLook(l.policy, age, moved)))
	}
}

// How often a flow is looked at that is not old and big enough.
const (
	minLook = 250 * time.Millisecond
	maxLook = 10 * time.Second
)

// untilNextLook is when a flow would be big enough if it went on as so far.
func untilNextLook(p lb.Offload, age time.Duration, moved int64) time.Duration {
	young := p.AfterAge - age
	if moved <= 0 {
		return max(young, min(max(minLook, age), maxLook))
	}
	small := time.Duration(float64(age) / float64(moved) * float64(p.AfterBytes-moved))
	return max(young, min(max(minLook, small), maxLook))
}

// retryAfter is how long an attempt is waited for after so many that came to
// nothing, and whether it holds data back from the start. The first one looks for a
// moment at which the flow is quiet by itself.
func retryAfter(tries int, always bool) (wait time.Duration, force, again bool) {
	waits := []time.Duration{0, 100 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second}
	if tries >= len(waits) {
		return 0, false, false
	}
	return waits[tries], always || tries > 0, true
}
