package sched

import (
	"math/big"
	"net/netip"
	"testing"

	"github.com/baton-lb/baton/lb"
)

func TestTableSizes(t *testing.T) {
	for i, n := range tableSizes {
		if !big.NewInt(int64(n)).ProbablyPrime(20) || i > 0 && n <= tableSizes[i-1] {
			t.Errorf("table size %d is not prime, or not in order", n)
		}
	}
	for _, c := range []struct{ listed, want int }{
		{1, 251}, {2, 251}, {3, 509}, {5, 509}, {6, 1021}, {81, 8191}, {82, 16381}, {100, 16381}, {1000, 131071},
		{maxInTable, 8388593}, {maxInTable + 1, 0},
	} {
		if got := tableSize(c.listed); got != c.want || got != 0 && got < perBackend*c.listed {
			t.Errorf("%d listed: %d, want %d", c.listed, got, c.want)
		}
	}
}

func entries(s *Scheduler) map[*Backend]int {
	n := make(map[*Backend]int)
	for _, i := range s.tiers[0].table {
		n[s.tiers[0].backends[i]]++
	}
	return n
}

// Every backend has its share of the table within 2 %.
func TestMaglevWeights(t *testing.T) {
	for _, weights := range [][]uint16{
		ones(3), ones(100), ones(1000), {3, 1}, {1, 2, 3}, {60000, 30000, 30000}, rising(100, 50, 1),
	} {
		p := newPool(weights...)
		s := New(lb.Maglev, p.backends, Options{})
		total, size := 0, len(s.tiers[0].table)
		for _, w := range weights {
			total += int(w)
		}
		for b, n := range entries(s) {
			want := float64(size) * float64(b.Weight) / float64(total)
			if off := (float64(n) - want) / want; off > 0.02 || off < -0.02 {
				t.Errorf("%d backends: weight %d has %d entries of %d, want %.1f: off by %.1f %%",
					len(weights), b.Weight, n, size, want, off*100)
			}
		}
	}
}

func ones(n int) []uint16 { return rising(n, 1, 0) }

func rising(n int, from, step uint16) []uint16 {
	out := make([]uint16, n)
	for i := range out {
		out[i] = from + uint16(i)*step
	}
	return out
}

// Removing one of 100 backends, or losing one to a probe, moves less than 2 %
// of the keys of the others.
func TestMaglevDisruption(t *testing.T) {
	for _, weights := range [][]uint16{ones(100), rising(100, 50, 1)} {
		p := newPool(weights...)
		before := New(lb.Maglev, p.backends, Options{})
		worst := 0.0
		for gone := 0; gone < 100; gone += 3 { // the first and the last as well
			after := New(lb.Maglev, p.without(gone), Options{})
			worst = max(worst, moved(before, after, p.backends[gone]))
		}
		t.Logf("at worst %.2f %% of the others' entries moved", worst*100)
		if worst >= 0.02 {
			t.Errorf("%.2f %% of the others' entries moved", worst*100)
		}
		p.backends[17].Unhealthy = true
		after := New(lb.Maglev, p.backends, Options{})
		if share := moved(before, after, p.backends[17]); share >= 0.02 {
			t.Errorf("unhealthy: %.2f %% of the others' entries moved", share*100)
		}
	}
}

// moved is which share of the entries that were not gone's have changed.
func moved(before, after *Scheduler, gone *Backend) float64 {
	x, y := &before.tiers[0], &after.tiers[0]
	if len(x.table) != len(y.table) {
		return 1
	}
	others, changed := 0, 0
	for i := range x.table {
		was := x.backends[x.table[i]]
		if was == gone {
			continue
		}
		others++
		if y.backends[y.table[i]] != was {
			changed++
		}
	}
	return float64(changed) / float64(others)
}

// A failing backend keeps the table's size: only its listing counts.
func TestMaglevSizeIsByListing(t *testing.T) {
	p := equalPool(82)
	p.backends[5].Unhealthy = true
	s := New(lb.Maglev, p.backends, Options{})
	if got := len(s.tiers[0].table); got != 16381 {
		t.Errorf("the table has %d entries, want 16381", got)
	}
}

func TestMaglevIsByAddressAndPort(t *testing.T) {
	s := New(lb.Maglev, equalPool(50).backends, Options{})
	seen := map[*Backend]bool{}
	for port := range uint16(100) {
		c := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)
		b := mustPick(t, s, Request{Client: c})
		mapped := netip.AddrPortFrom(netip.MustParseAddr("::ffff:192.0.2.1"), port)
		if got := mustPick(t, s, Request{Client: mapped}); got != b {
			t.Errorf("%s and %s differ", c, mapped)
		}
		seen[b] = true
	}
	if len(seen) < 30 {
		t.Errorf("100 ports of one client reached %d of 50 backends", len(seen))
	}
}

// The clients of a full or tried one are shared by all others.
func TestMaglevFallback(t *testing.T) {
	p := equalPool(10)
	s := New(lb.Maglev, p.backends, Options{})
	got := map[netip.AddrPort]int{}
	for i := range 100_000 {
		r := Request{Client: client(i)}
		if mustPick(t, s, r) == p.backends[3] {
			r.Tried = p.backends[3:4]
			got[mustPick(t, s, r).Address]++
		}
	}
	checkShares(t, got, p.without(3), 0.3)
}

// Not even the smallest weight is out of reach when all others are tried.
func TestMaglevWithoutEntries(t *testing.T) {
	p := newPool(1, lb.MaxWeight, lb.MaxWeight)
	s := New(lb.Maglev, p.backends, Options{})
	if n := entries(s)[p.backends[0]]; n != 0 {
		t.Fatalf("a has %d entries; the test wants none", n)
	}
	if got := picks(t, s, 3, p.named("bc")...); got != "aaa" {
		t.Errorf("picked %s", got)
	}
}

func TestMaglevTableIsKept(t *testing.T) {
	p, q := newPool(1, 2, 3), newPool(1, 2, 3)
	s := New(lb.Maglev, p.backends, Options{})
	if again := New(lb.Maglev, q.backends, Options{Previous: s}); &again.tiers[0].table[0] != &s.tiers[0].table[0] {
		t.Error("the same backends got a new table")
	} else if b := mustPick(t, again, Request{Client: client(1)}); b != q.backends[0] && b != q.backends[1] && b != q.backends[2] {
		t.Error("the kept table leads to backends of the old snapshot")
	}
	q.backends[1].Weight = 9
	if again := New(lb.Maglev, q.backends, Options{Previous: s}); &again.tiers[0].table[0] == &s.tiers[0].table[0] {
		t.Error("another weight got the old table")
	}
}

// More backends than a table can name: rendezvous on the same key.
func TestMaglevTooMany(t *testing.T) {
	backends := make([]*Backend, maxInTable+1)
	for i := range backends {
		backends[i] = &Backend{Backend: &lb.Backend{Address: addrOf(i), Weight: 1}}
	}
	s := New(lb.Maglev, backends, Options{})
	a := mustPick(t, s, Request{Client: netip.MustParseAddrPort("192.0.2.1:1")})
	b := mustPick(t, s, Request{Client: netip.MustParseAddrPort("192.0.2.1:2")})
	if s.tiers[0].table != nil || a == b {
		t.Errorf("table of %d entries; two ports of a client both go to %s", len(s.tiers[0].table), a.Address)
	}
}
