package sched

import (
	"cmp"
	"slices"

	"github.com/baton-lb/baton/lb"
)

// class orders the tiers.
type class struct {
	priority uint16
	far      bool // not in the balancer's own zone
}

func classOf(b *Backend, zone string) class {
	return class{b.Priority, zone != "" && b.Zone != zone}
}

func (c class) compare(d class) int {
	if c := cmp.Compare(c.priority, d.priority); c != 0 {
		return c
	}
	switch {
	case c.far == d.far:
		return 0
	case d.far:
		return -1
	}
	return 1
}

// tier is the candidates of one priority in, or out of, the balancer's zone.
// Only the state of the algorithm in use is there.
type tier struct {
	class    class
	listed   int        // backends of this class, candidates or not
	backends []*Backend // at least one
	weights  []uint32   // the shares; nil when all have the same
	limited  bool       // one has MaxConnections

	rotation *rotation // round-robin, least-connections
	sums     []uint64  // random with weights: of the weights up to and with each
	hashes   []uint64  // source-hash, Maglev
	table    []uint16  // Maglev
}

// makeTiers sorts the n candidates into tiers, the best first, each in the
// order of the list.
func makeTiers(backends []*Backend, r rule, n int, zone string) []tier {
	if n == 0 {
		return nil
	}
	all := make([]*Backend, 0, n)
	for _, b := range backends {
		if r.allows(b) {
			all = append(all, b)
		}
	}
	byClass := func(a, b *Backend) int { return classOf(a, zone).compare(classOf(b, zone)) }
	if !slices.IsSortedFunc(all, byClass) {
		slices.SortStableFunc(all, byClass)
	}
	tiers := make([]tier, 0, 1)
	for len(all) > 0 {
		t := tier{class: classOf(all[0], zone)}
		end := 1
		for end < len(all) && classOf(all[end], zone) == t.class {
			end++
		}
		t.backends, all = all[:end:end], all[end:]
		for _, b := range backends {
			if classOf(b, zone) == t.class {
				t.listed++
			}
		}
		tiers = append(tiers, t)
	}
	return tiers
}

// prepare computes what the algorithm needs.
func (t *tier) prepare(a lb.Algorithm, previous *Scheduler) {
	if a == lb.Maglev {
		sortByHash(t.backends)
	}
	same := true
	for _, b := range t.backends {
		t.limited = t.limited || b.MaxConnections > 0
		same = same && b.share() == t.backends[0].share()
	}
	if !same {
		t.weights = make([]uint32, len(t.backends))
		for i, b := range t.backends {
			t.weights[i] = b.share()
		}
	}
	before := previous.tier(t.class)
	switch a {
	case lb.Random:
		t.sums = sumsOf(t.weights)
	case lb.SourceHash:
		t.hashes = hashesOf(t.backends)
	case lb.Maglev:
		t.prepareMaglev(before)
	default:
		t.rotation = newRotation(t, before)
	}
}

func (t *tier) prepareMaglev(before *tier) {
	t.hashes = hashesOf(t.backends)
	size := tableSize(t.listed)
	switch {
	case size == 0:
	case before.hasTableOf(t, size):
		t.table = before.table
	default:
		t.table = makeTable(t.backends, t.hashes, size)
	}
}

// tier finds the tier of a class, or nil.
func (s *Scheduler) tier(c class) *tier {
	if s == nil {
		return nil
	}
	for i := range s.tiers {
		if s.tiers[i].class == c {
			return &s.tiers[i]
		}
	}
	return nil
}

// sameBackends reports whether both tiers have the same addresses in the same
// order, with the same shares.
func (t *tier) sameBackends(u *tier) bool {
	return slices.EqualFunc(t.backends, u.backends, func(a, b *Backend) bool {
		return a.Address == b.Address && a.share() == b.share()
	})
}
