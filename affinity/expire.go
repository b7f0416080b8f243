package affinity

import "time"

// expireTurn is how many entries Expire looks at before it lets others in.
const expireTurn = 256

// Expire removes the entries of clients whose last new flow is timeout ago, and
// returns how many. Memory is given back once little is left.
func (t *Table) Expire(now time.Time, timeout time.Duration) int {
	total := 0
	for {
		n := t.expireSome(now, timeout)
		total += n
		if n < expireTurn {
			t.shrink()
			return total
		}
	}
}

// expireSome removes up to expireTurn entries. The list is in the order of last
// flows, so the first one that stays ends it.
func (t *Table) expireSome(now time.Time, timeout time.Duration) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for n < expireTurn && t.entries.oldest != none {
		r := t.entries.oldest
		if now.Sub(t.base)-t.entries.at(r).last < timeout {
			break
		}
		t.removeLocked(r)
		n++
	}
	return n
}

// shrinkMost is how many entries are moved at once, while others wait.
const shrinkMost = 4096

// shrink moves what is left into a table of its size when that is little, and
// less than a quarter of what there is room for.
func (t *Table) shrink() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries.made < 4*chunkSize || len(t.index) > min(t.entries.made/4, shrinkMost) {
		return
	}
	old := t.entries
	t.entries, t.index = slab{}, make(map[[16]byte]ref, len(t.index))
	for r := old.oldest; r != none; r = old.at(r).newer {
		e := *old.at(r)
		to := t.entries.take()
		*t.entries.at(to) = e
		t.entries.pushNewest(to)
		t.index[e.client] = to
	}
}
