package sched

import (
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// Backend is a backend that can be chosen. It is immutable once published: a
// change makes a new one, with the same Load.
type Backend struct {
	*lb.Backend
	Load *flow.Load // nil = not counted

	HealthReason string // why it is unhealthy
	Unhealthy    bool   // a probe or a passive ejection says so
	Ramp         uint8  // percent of its weight while it comes back, 1 to 99; 0 = all of it
	Drained      bool   // `baton drain` says so
}

// TakesNew reports whether new flows may go to the backend: its state is ready,
// it is not drained, it has a weight, it serves, it is not terminating, and it
// is not unhealthy. Whether it has room (Full) is another question.
func (b *Backend) TakesNew() bool { return !b.Unhealthy && b.TakesNewIfHealthy() }

// TakesNewIfHealthy is TakesNew without the question of health.
func (b *Backend) TakesNewIfHealthy() bool { return !b.Terminating && b.wanted() }

// Full reports whether the backend has MaxConnections open flows.
func (b *Backend) Full() bool {
	return b.MaxConnections > 0 && b.flows() >= int64(b.MaxConnections)
}

// wanted reports whether nobody has taken the backend out of service.
func (b *Backend) wanted() bool {
	return b.State == lb.StateReady && !b.Drained && b.Weight > 0 && !b.NotServing
}

func (b *Backend) flows() int64 {
	if b.Load == nil {
		return 0
	}
	return b.Load.Flows() + b.Load.Planned()
}

// shareUnit is what a weight of 1 counts. A power of two changes no table of
// Maglev (priceOf rounds to one): whether a backend ramps moves no client among
// the others.
const shareUnit = 128

// share is the backend's part of the new flows: its weight, less while it comes
// back, but never nothing.
func (b *Backend) share() uint32 {
	full := uint32(b.Weight) * shareUnit
	if b.Ramp == 0 || b.Ramp >= 100 {
		return full
	}
	return max(1, full*uint32(b.Ramp)/100)
}

func (b *Backend) level() level { return level{b.flows(), int64(b.share())} }

// level is how many open flows a backend has for its share.
type level struct{ flows, weight int64 }

// below reports whether l is the lower load.
func (l level) below(m level) bool { return l.flows*m.weight < m.flows*l.weight }

// equals reports whether both are the same load.
func (l level) equals(m level) bool { return l.flows*m.weight == m.flows*l.weight }
