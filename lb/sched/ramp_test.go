package sched

import (
	"strings"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

func TestShare(t *testing.T) {
	for _, c := range []struct {
		weight uint16
		ramp   uint8
		want   uint32
	}{
		{1, 0, 128}, {1, 10, 12}, {1, 50, 64}, {1, 99, 126}, {1, 100, 128}, {1, 255, 128}, {1, 1, 1},
		{0, 0, 0}, {lb.MaxWeight, 0, lb.MaxWeight * 128}, {lb.MaxWeight, 99, lb.MaxWeight * 128 / 100 * 99},
	} {
		b := &Backend{Backend: &lb.Backend{Weight: c.weight}, Ramp: c.ramp}
		if got := b.share(); got < c.want || got > c.want+99 {
			t.Errorf("weight %d at %d %%: %d, want %d", c.weight, c.ramp, got, c.want)
		}
	}
}

// Where new flows are spread by weight, one that ramps gets so much of its own.
func TestRampedShares(t *testing.T) {
	for _, a := range []lb.Algorithm{lb.RoundRobin, lb.SourceHash, lb.Maglev} {
		t.Run(string(a), func(t *testing.T) {
			p := newPool(1, 1, 1)
			p.backends[1].Ramp = 50
			got := shares(t, New(a, p.backends, Options{Seed: 1}), 10_000)
			for i, want := range []int{4000, 2000, 4000} {
				if n := got[p.backends[i].Address]; n < want*9/10 || n > want*11/10 {
					t.Errorf("%s got %d of 10,000, want about %d", name(p.backends[i]), n, want)
				}
			}
		})
	}
}

// To least-connections an idle backend is the best one: it may catch up only as
// far as its ramp goes. Best-of-two draws it less often besides.
func TestRampHoldsBackAnIdleBackend(t *testing.T) {
	for _, a := range []lb.Algorithm{lb.LeastConnections, lb.Random} {
		t.Run(string(a), func(t *testing.T) {
			p := newPool(1, 1, 1)
			p.open(t, p.backends[0], 100)
			p.open(t, p.backends[2], 100)
			back := p.backends[1]
			for _, ramp := range []uint8{10, 50, 0} {
				back.Ramp = ramp
				s := New(a, p.backends, Options{Seed: 1})
				before := back.Load.Flows()
				for i := range 60 {
					b := mustPick(t, s, Request{Client: client(i)})
					rec := p.registry.Open(flow.Spec{Proto: flow.TCP, Client: client(i), Frontend: addrOf(0)})
					rec.Assign(flow.Assignment{Backend: b.Address, Load: b.Load})
				}
				most := p.backends[0].Load.Flows() + 1
				if ramp > 0 {
					most = most*int64(ramp)/100 + 1
				}
				if n := back.Load.Flows(); n <= before || n > most {
					t.Errorf("at %d %%: %d flows, want more than %d and at most %d", ramp, n, before, most)
				}
			}
		})
	}
}

// The steps of a ramp do not start the rotation again, and none of them brings
// a burst on one backend.
func TestRampStepsKeepTheRotation(t *testing.T) {
	p := newPool(1, 1, 1)
	var s *Scheduler
	all := ""
	for _, ramp := range []uint8{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 0} {
		step := newPool(1, 1, 1)
		step.backends[2].Ramp = ramp
		s = New(lb.RoundRobin, step.backends, Options{Previous: s})
		all += picks(t, s, 7)
	}
	for _, b := range p.backends {
		if burst := strings.Repeat(name(b), 3); strings.Contains(all, burst) {
			t.Errorf("%s in %s", burst, all)
		}
	}
	if n := strings.Count(all, "c"); n < 15 || n > 21 {
		t.Errorf("c was chosen %d times in %s", n, all)
	}
	if a, b := strings.Count(all, "a"), strings.Count(all, "b"); a-b > 2 || b-a > 2 {
		t.Errorf("a and b got %d and %d in %s", a, b, all)
	}
}

// A client of a hash moves once at most: from where it was meanwhile to the
// backend that comes back.
func TestRampMovesClientsOnce(t *testing.T) {
	p := newPool(1, 2, 1, 1)
	at := func(ramp uint8) *Scheduler {
		p.backends[1].Ramp = ramp
		return New(lb.SourceHash, p.backends, Options{})
	}
	steps := []*Scheduler{New(lb.SourceHash, p.without(1), Options{}), at(10), at(50), at(90), at(0)}
	for i := range 5000 {
		r := Request{Client: client(i)}
		was := mustPick(t, steps[0], r).Address
		for _, s := range steps[1:] {
			is := mustPick(t, s, r).Address
			if is != was && is != p.backends[1].Address {
				t.Fatalf("%s moved from %s to %s, but another one came back", r.Client, was, is)
			}
			was = is
		}
	}
}

// A weight is a weight, in whatever unit it is counted: tables of Maglev are the
// same on every host.
func TestShareUnitChangesNoTable(t *testing.T) {
	for _, weights := range [][]uint16{ones(5), {1, 2, 3}, {3, 3, 5}, {60000, 30000, 7}, rising(50, 1, 3)} {
		sum := uint64(0)
		for _, w := range weights {
			sum += uint64(w)
		}
		plain := uint32(1)
		for uint64(plain)*uint64(len(weights)) < sum {
			plain *= 2
		}
		if got := priceOf(newPool(weights...).backends); got != plain*shareUnit {
			t.Errorf("weights %v: a turn costs %d, want %d times %d", weights, got, shareUnit, plain)
		}
	}
}
