package sched

// leastLoaded is the one with the fewest open flows for its weight. Those that
// are equally loaded take turns.
func (t *tier) leastLoaded(f filter) *Backend {
	var best *Backend
	ties := 0
	for _, b := range t.backends {
		if !f.allows(b) {
			continue
		}
		switch {
		case best == nil || b.lighter(best):
			best, ties = b, 1
		case !best.lighter(b):
			ties++
		}
	}
	if ties < 2 {
		return best
	}
	f.level = best
	if b := t.rotation.next(t, f); b != nil {
		return b
	}
	return best // others took flows or lost them meanwhile
}
