package sched

import (
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

func TestRandomShares(t *testing.T) {
	for _, weights := range [][]uint16{{1}, {1, 1}, {1, 1, 1, 1, 1}, {3, 1}, {1, 2, 3, 4}, {lb.MaxWeight, lb.MaxWeight / 4}} {
		p := newPool(weights...)
		s := New(lb.Random, p.backends, Options{Seed: 7})
		checkShares(t, shares(t, s, 40_000), p.backends, 0.03)
	}
}

// A tried or a full one leaves the proportions of the others as they are.
func TestRandomSharesOfTheOthers(t *testing.T) {
	for _, weights := range [][]uint16{{1, 1, 1, 1}, {9, 1, 2, 3}} {
		p := newPool(weights...)
		s := New(lb.Random, p.backends, Options{Seed: 7})
		checkShares(t, shares(t, s, 40_000, p.backends[0]), p.without(0), 0.03)
		checkShares(t, shares(t, s, 20_000, p.named("abc")...), p.without(0, 1, 2), 0)
	}
}

func TestRandomTakesTheLighterOfTwo(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights []uint16
		flows   []int
		want    string // the only one of two that is ever chosen
	}{
		{"fewer flows", []uint16{1, 1}, []int{5, 4}, "b"},
		{"relative to weight", []uint16{1, 4}, []int{2, 6}, "b"},
		{"relative to weight, the other way", []uint16{1, 4}, []int{2, 9}, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPool(c.weights...)
			for i, n := range c.flows {
				p.open(t, p.backends[i], n)
			}
			if got := distinct(picks(t, New(lb.Random, p.backends, Options{Seed: 3}), 200)); got != c.want {
				t.Errorf("picked %s, want only %s", got, c.want)
			}
		})
	}
}

// Flows that stay are spread far better than by single draws.
func TestRandomFills(t *testing.T) {
	p := equalPool(10)
	s := New(lb.Random, p.backends, Options{Seed: 5})
	for i := range 5000 {
		b := mustPick(t, s, Request{Client: client(i)})
		rec := p.registry.Open(flow.Spec{Proto: flow.TCP, Client: client(i), Frontend: addrOf(0)})
		rec.Assign(flow.Assignment{Backend: b.Address, Load: b.Load})
	}
	for _, b := range p.backends {
		if n := b.Load.Flows(); n < 490 || n > 510 {
			t.Errorf("%s has %d flows, want 500 ± 10", name(b), n)
		}
	}
}

func TestRandomSeed(t *testing.T) {
	p := equalPool(10)
	one, two := New(lb.Random, p.backends, Options{Seed: 1}), New(lb.Random, p.backends, Options{Seed: 1})
	if a, b := picks(t, one, 50), picks(t, two, 50); a != b {
		t.Errorf("the same seed gave %s and %s", a, b)
	}
	three, four := New(lb.Random, p.backends, Options{}), New(lb.Random, p.backends, Options{})
	if a, b := picks(t, three, 50), picks(t, four, 50); a == b {
		t.Errorf("no seed gave %s twice", a)
	}
}
