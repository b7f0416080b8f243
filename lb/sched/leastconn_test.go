package sched

import (
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

func TestLeastConnections(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights []uint16
		flows   []int
		tried   string
		want    string
	}{
		{"the idle one", []uint16{1, 1, 1}, []int{2, 0, 1}, "", "bbb"},
		{"ties take turns", []uint16{1, 1, 1}, []int{1, 1, 1}, "", "abcabc"},
		{"ties of some", []uint16{1, 1, 1}, []int{0, 5, 0}, "", "acacac"},
		{"relative to weight", []uint16{1, 4}, []int{1, 3}, "", "bbb"},
		{"relative to weight, the other way", []uint16{1, 4}, []int{1, 5}, "", "aaa"},
		{"in proportion: turns by weight", []uint16{1, 3}, []int{2, 6}, "", "babb"},
		{"idle: turns by weight", []uint16{5, 1, 1}, []int{0, 0, 0}, "", "aabacaa"},
		{"tried", []uint16{1, 1, 1}, []int{2, 0, 1}, "b", "ccc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPool(c.weights...)
			for i, n := range c.flows {
				p.open(t, p.backends[i], n)
			}
			s := New(lb.LeastConnections, p.backends, Options{})
			got := picks(t, s, len(c.want), p.named(c.tried)...)
			if got != c.want {
				t.Errorf("picked %s, want %s", got, c.want)
			}
		})
	}
}

// Flows that stay fill the backends in proportion to their weights.
func TestLeastConnectionsFills(t *testing.T) {
	for _, weights := range [][]uint16{{1, 1, 1}, {1, 2, 5}, {lb.MaxWeight, lb.MaxWeight / 2}} {
		p := newPool(weights...)
		s := New(lb.LeastConnections, p.backends, Options{})
		for i := range 800 {
			b := mustPick(t, s, Request{Client: client(i)})
			rec := p.registry.Open(flow.Spec{Proto: flow.TCP, Client: client(i), Frontend: addrOf(0)})
			rec.Assign(flow.Assignment{Backend: b.Address, Load: b.Load})
		}
		total := 0
		for _, w := range weights {
			total += int(w)
		}
		for i, b := range p.backends {
			if want := 800 * int(weights[i]) / total; b.Load.Flows() < int64(want)-2 || b.Load.Flows() > int64(want)+2 {
				t.Errorf("weights %v: %s has %d flows, want %d", weights, name(b), b.Load.Flows(), want)
			}
		}
	}
}
