package sched

import (
	"testing"

	"github.com/baton-lb/baton/lb"
)

func TestTakesNew(t *testing.T) {
	for _, c := range []struct {
		name            string
		change          func(*Backend)
		want, ifHealthy bool
	}{
		{"ready", func(*Backend) {}, true, true},
		{"unhealthy", func(b *Backend) { b.Unhealthy = true }, false, true},
		{"state drain", func(b *Backend) { b.State = lb.StateDrain }, false, false},
		{"state down", func(b *Backend) { b.State = lb.StateDown }, false, false},
		{"drained by command", func(b *Backend) { b.Drained = true }, false, false},
		{"weight 0", func(b *Backend) { b.Weight = 0 }, false, false},
		{"not serving", func(b *Backend) { b.NotServing = true }, false, false},
		{"terminating", func(b *Backend) { b.Terminating = true }, false, false},
		{"full", func(b *Backend) { b.MaxConnections = 1 }, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPool(1)
			b := p.backends[0]
			c.change(b)
			p.open(t, b, 1)
			if got := b.TakesNew(); got != c.want {
				t.Errorf("TakesNew = %v, want %v", got, c.want)
			}
			if got := b.TakesNewIfHealthy(); got != c.ifHealthy {
				t.Errorf("TakesNewIfHealthy = %v, want %v", got, c.ifHealthy)
			}
		})
	}
}

func TestFull(t *testing.T) {
	for _, c := range []struct {
		limit, flows int
		want         bool
	}{{0, 0, false}, {0, 5, false}, {2, 1, false}, {2, 2, true}, {2, 3, true}} {
		p := newPool(1)
		b := p.backends[0]
		b.MaxConnections = c.limit
		p.open(t, b, c.flows)
		if got := b.Full(); got != c.want {
			t.Errorf("limit %d, %d flows: full = %v, want %v", c.limit, c.flows, got, c.want)
		}
	}
	if b := (&Backend{Backend: &lb.Backend{MaxConnections: 1}}); b.Full() {
		t.Error("a backend whose flows are not counted is full")
	}
}

func TestLevel(t *testing.T) {
	for _, c := range []struct {
		name             string
		flowsA, flowsB   int
		weightA, weightB uint16
		want, equal      bool
	}{
		{"both idle", 0, 0, 1, 3, false, true},
		{"fewer", 1, 2, 1, 1, true, false},
		{"more", 2, 1, 1, 1, false, false},
		{"more, and more weight", 2, 1, 3, 1, true, false},
		{"in proportion", 3, 1, 3, 1, false, true},
	} {
		p := newPool(c.weightA, c.weightB)
		a, b := p.backends[0], p.backends[1]
		p.open(t, a, c.flowsA)
		p.open(t, b, c.flowsB)
		if got := a.level().below(b.level()); got != c.want {
			t.Errorf("%s: below = %v, want %v", c.name, got, c.want)
		}
		if got := a.level().equals(b.level()); got != c.equal {
			t.Errorf("%s: equals = %v, want %v", c.name, got, c.equal)
		}
	}
}
