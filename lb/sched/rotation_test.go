package sched

import (
	"strings"
	"testing"

	"github.com/baton-lb/baton/lb"
)

func TestRoundRobinSequence(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights []uint16
		want    string
	}{
		{"one", []uint16{1}, "aaa"},
		{"equal", []uint16{1, 1, 1}, "abcabc"},
		{"equal but not 1", []uint16{7, 7}, "abab"},
		{"smooth, not in bursts", []uint16{5, 1, 1}, "aabacaa" + "aabacaa"},
		{"3 to 1", []uint16{3, 1}, "aaba" + "aaba"},
		{"2 to 3", []uint16{2, 3}, "babab" + "babab"},
		{"the largest and the smallest", []uint16{1, lb.MaxWeight}, strings.Repeat("b", 50)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(lb.RoundRobin, newPool(c.weights...).backends, Options{})
			if got := picks(t, s, len(c.want)); got != c.want {
				t.Errorf("picked %s, want %s", got, c.want)
			}
		})
	}
}

// Over one round the shares are exact.
func TestRoundRobinIsExact(t *testing.T) {
	for _, weights := range [][]uint16{{1, 1, 1}, {1, 2, 3, 4, 5}, {100, 1}, {lb.MaxWeight, 1, 1}} {
		p, sum := newPool(weights...), 0
		for _, w := range weights {
			sum += int(w)
		}
		s := New(lb.RoundRobin, p.backends, Options{})
		checkShares(t, shares(t, s, 2*sum), p.backends, 0)
	}
}

// What a full or a tried backend leaves is shared by all others: its neighbour
// in the list does not get it all.
func TestRoundRobinAroundOneThatCannot(t *testing.T) {
	for _, weights := range [][]uint16{{1, 1, 1, 1}, {2, 1, 2, 4}} {
		p := newPool(weights...)
		s := New(lb.RoundRobin, p.backends, Options{})
		checkShares(t, shares(t, s, 8400, p.backends[1]), p.without(1), 0.01)
		fill(t, p, "b")
		s = New(lb.RoundRobin, p.backends, Options{})
		checkShares(t, shares(t, s, 8400), p.without(1), 0.01)
	}
}

// A backend refuses and every flow that meets it picks again.
func TestRoundRobinRetries(t *testing.T) {
	for _, weights := range [][]uint16{{1, 1, 1, 1}, {2, 1, 2, 4}} {
		p := newPool(weights...)
		s := New(lb.RoundRobin, p.backends, Options{})
		got := map[string]int{}
		for range 9000 {
			b := mustPick(t, s, Request{})
			if b == p.backends[1] {
				b = mustPick(t, s, Request{Tried: p.backends[1:2]})
			}
			got[name(b)]++
		}
		for i, c := range []string{"a", "-", "c", "d"} {
			sum := int(weights[0] + weights[2] + weights[3])
			if want := 9000 * int(weights[i]) / sum; c != "-" && (got[c] < want*9/10 || got[c] > want*11/10) {
				t.Errorf("weights %v: %s got %d of %v, want %d", weights, c, got[c], got, want)
			}
		}
	}
}

func TestRotationSurvivesReload(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights []uint16
		picked  int // before the reload
		after   func(*pool) []*Backend
		want    string
	}{
		{"nothing changed", []uint16{1, 1, 1}, 2, all, "cabc"},
		{"nothing changed, at the start of a round", []uint16{1, 1, 1}, 3, all, "abca"},
		{"nothing changed, weighted", []uint16{5, 1, 1}, 3, all, "acaa" + "aabacaa"},
		{"one before it was removed", []uint16{1, 1, 1, 1}, 2, omit(0), "cdbc"},
		{"the next one was removed", []uint16{1, 1, 1, 1}, 2, omit(2), "dabd"},
		{"one was added", []uint16{1, 1, 1}, 2, with(1), "cdab"},
		{"one was added in front", []uint16{1, 1, 1}, 2, inFront, "cdab"},
		{"all others", []uint16{1, 1}, 1, omit(0, 1), ""},
		{"now with weights", []uint16{1, 1, 1}, 1, with(2), "bdcdab"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPool(c.weights...)
			s := New(lb.RoundRobin, p.backends, Options{})
			picks(t, s, c.picked)
			s = New(lb.RoundRobin, c.after(p), Options{Previous: s})
			if got := picks(t, s, len(c.want)); got != c.want {
				t.Errorf("picked %s, want %s", got, c.want)
			}
		})
	}
}

func all(p *pool) []*Backend { return p.backends }

func omit(at ...int) func(*pool) []*Backend {
	return func(p *pool) []*Backend { return p.without(at...) }
}

func with(weight uint16) func(*pool) []*Backend {
	return func(p *pool) []*Backend {
		p.add(lb.Backend{Address: addrOf(len(p.backends)), Weight: weight})
		return p.backends
	}
}

func inFront(p *pool) []*Backend {
	with(1)(p)
	n := len(p.backends) - 1
	return append([]*Backend{p.backends[n]}, p.backends[:n]...)
}

// A reload before every pick changes nothing, in whatever order the list is.
func TestReloadBeforeEveryPick(t *testing.T) {
	for _, weights := range [][]uint16{{1, 1, 1, 1, 1}, {4, 1, 3, 2, 1}} {
		p := newPool(weights...)
		s := New(lb.RoundRobin, p.backends, Options{})
		got := map[*Backend]int{}
		for i := range 1100 {
			turned := append(p.without(), p.backends...)[i%5 : i%5+5]
			s = New(lb.RoundRobin, turned, Options{Previous: s})
			got[mustPick(t, s, Request{})]++
		}
		sum := 0
		for _, w := range weights {
			sum += int(w)
		}
		for i, b := range p.backends {
			if want := 1100 * int(weights[i]) / sum; got[b] < want-5 || got[b] > want+5 {
				t.Errorf("weights %v: %s got %d, want %d", weights, name(b), got[b], want)
			}
		}
	}
}

// A backend that keeps coming and going leaves no debt or credit behind.
func TestComingAndGoing(t *testing.T) {
	p := newPool(3, 2, 1)
	s := New(lb.RoundRobin, p.backends, Options{})
	for range 10_000 {
		mustPick(t, s, Request{})
		s = New(lb.RoundRobin, p.without(2), Options{Previous: s})
		mustPick(t, s, Request{})
		s = New(lb.RoundRobin, p.backends, Options{Previous: s})
	}
	for i, v := range s.tiers[0].rotation.current {
		if v < -12*shareUnit || v > 12*shareUnit {
			t.Errorf("%s stands at %d", name(p.backends[i]), v)
		}
	}
	checkShares(t, shares(t, s, 600), p.backends, 0.02)
}

// Another algorithm's scheduler has no rotation to go on with.
func TestReloadWithAnotherAlgorithm(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a lb.Algorithm) {
		eachAlgorithm(t, func(t *testing.T, b lb.Algorithm) {
			p := newPool(1, 2, 3)
			s := New(a, p.backends, Options{Seed: 1})
			picks(t, s, 4)
			s = New(b, p.backends, Options{Previous: s, Seed: 1})
			if got := distinct(picks(t, s, 300)); got != "abc" {
				t.Errorf("picked %q", got)
			}
		})
	})
}
