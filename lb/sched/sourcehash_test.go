package sched

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/baton-lb/baton/lb"
)

func TestSourceHashIsByAddress(t *testing.T) {
	s := New(lb.SourceHash, equalPool(50).backends, Options{})
	for i := range 200 {
		a := client(i).Addr()
		want := mustPick(t, s, Request{Client: netip.AddrPortFrom(a, 1)})
		for _, same := range []netip.AddrPort{
			netip.AddrPortFrom(a, 2), netip.AddrPortFrom(a, 65535), netip.AddrPortFrom(netip.AddrFrom16(a.As16()), 9),
		} {
			if got := mustPick(t, s, Request{Client: same}); got != want {
				t.Errorf("%s goes to %s, %s to %s", a, want.Address, same, got.Address)
			}
		}
	}
}

func TestHashShares(t *testing.T) {
	for _, a := range []lb.Algorithm{lb.SourceHash, lb.Maglev} {
		for _, weights := range [][]uint16{{1, 1}, {1, 1, 1, 1, 1}, {3, 1}, {1, 2, 3, 4}, {lb.MaxWeight, lb.MaxWeight / 4}} {
			p := newPool(weights...)
			checkShares(t, shares(t, New(a, p.backends, Options{}), 40_000), p.backends, 0.04)
		}
	}
}

// Every balancer chooses alike, whatever the order in which it heard of the
// backends, and whatever it did before.
func TestHashIgnoresOrder(t *testing.T) {
	for _, a := range []lb.Algorithm{lb.SourceHash, lb.Maglev} {
		for _, p := range []*pool{equalPool(20), newPool(1, 2, 3, 4, 5, 5, 4, 3, 2, 1)} {
			one := New(a, p.backends, Options{})
			turned := slices.Clone(p.backends)
			slices.Reverse(turned)
			two := New(a, turned, Options{Previous: New(a, p.without(3), Options{})})
			for i := range 2000 {
				r := Request{Client: client(i)}
				for range 3 {
					x, y := mustPick(t, one, r), mustPick(t, two, r)
					if x != y {
						t.Fatalf("%s: %s goes to %s or %s (tried %d)", a, r.Client, x.Address, y.Address, len(r.Tried))
					}
					r.Tried = append(r.Tried, x)
				}
			}
		}
	}
}

// The hash is a promise to other hosts and later versions.
func TestHashIsStable(t *testing.T) {
	for _, c := range []struct {
		algorithm lb.Algorithm
		weights   []uint16
		want      string
	}{
		{lb.SourceHash, []uint16{1, 1, 1, 1, 1}, "ccecadeeeeaecbbbcebacbcbddbbabccaabebccc"},
		{lb.SourceHash, []uint16{1, 2, 3, 4, 5}, "ccecadeeeeaeebbbcebccbcbddcbeeeceeeebccc"},
		{lb.Maglev, []uint16{1, 1, 1, 1, 1}, "cdbbbbeeaabdaeaeeaaccdcdaacebcbdababeceb"},
		{lb.Maglev, []uint16{1, 2, 3, 4, 5}, "cddbbbeedebdaeceeddeedcdeeeebcbdebbbeeea"},
	} {
		s := New(c.algorithm, newPool(c.weights...).backends, Options{})
		if got := picks(t, s, 40); got != c.want {
			t.Errorf("%s %v: picked %s, want %s", c.algorithm, c.weights, got, c.want)
		}
	}
}

// A source-hash backend that goes moves its own clients only, to their second
// best; one whose weight grows only takes clients, none moves between others.
func TestSourceHashDisruption(t *testing.T) {
	weights := []uint16{1, 2, 3, 4, 5, 5, 4, 3, 2, 1}
	p := newPool(weights...)
	heavier := newPool(weights...)
	heavier.backends[4].Weight = 9
	before := New(lb.SourceHash, p.backends, Options{})
	removed := New(lb.SourceHash, p.without(4), Options{})
	grown := New(lb.SourceHash, heavier.backends, Options{})
	for i := range 5000 {
		r := Request{Client: client(i)}
		was := mustPick(t, before, r)
		is := mustPick(t, removed, r)
		if was != p.backends[4] && is != was {
			t.Fatalf("%s moved from %s to %s though neither was removed", r.Client, was.Address, is.Address)
		}
		r.Tried = p.backends[4:5]
		if retry := mustPick(t, before, r); retry != is {
			t.Fatalf("%s falls back to %s, but goes to %s once it is removed", r.Client, retry.Address, is.Address)
		}
		r.Tried = nil
		if is := mustPick(t, grown, r); is.Address != was.Address && is != heavier.backends[4] {
			t.Fatalf("%s moved from %s to %s, but another one grew", r.Client, was.Address, is.Address)
		}
	}
}

// Weights that are all the same mean the same whatever they are.
func TestSourceHashEqualWeights(t *testing.T) {
	for i, s := 0, New(lb.SourceHash, newPool(1, 1, 1, 1).backends, Options{}); i < 1000; i++ {
		tier := &s.tiers[0]
		fast := tier.highest(mix(uint64(i)), filter{})
		tier.weights = []uint32{7, 7, 7, 7}
		if slow := tier.rendezvous(mix(uint64(i)), filter{}); slow != fast {
			t.Fatalf("key %d: %s with logarithms, %s without", i, name(slow), name(fast))
		}
	}
}
