package admin

import (
	"errors"
	"sync/atomic"
)

// Lifecycle is where an instance stands, as /readyz and /livez tell it:
//
//	starting → ready → draining
//
// and, at any time, stuck: the loop that realises the desired state is gone.
// The zero value is starting.
type Lifecycle struct {
	ready, draining, stuck atomic.Bool
}

// Why an instance is not ready, or not alive.
var (
	errStarting = errors.New("starting: not every source has delivered what it has, or not all of that is in force")
	errDraining = errors.New("draining: the instance is stopping")
	errStuck    = errors.New("the reconcile loop has stopped")
)

// SetReady says that every source has synced and that what they delivered has
// been programmed once.
func (l *Lifecycle) SetReady() { l.ready.Store(true) }

// SetDraining says that the instance is stopping.
func (l *Lifecycle) SetDraining() { l.draining.Store(true) }

// SetStuck says that the reconcile loop has returned.
func (l *Lifecycle) SetStuck() { l.stuck.Store(true) }

// Ready is nil when new clients should be sent here.
func (l *Lifecycle) Ready() error {
	switch {
	case l.draining.Load():
		return errDraining
	case !l.ready.Load():
		return errStarting
	}
	return l.Live()
}

// Live is nil as long as a restart would help nothing.
func (l *Lifecycle) Live() error {
	if l.stuck.Load() && !l.draining.Load() {
		return errStuck
	}
	return nil
}
