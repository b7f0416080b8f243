package sched

// leastLoaded is the one with the fewest open flows for its weight. Those that
// are equally loaded take turns.
func (t *tier) leastLoaded(f filter) *Backend {
	var best *Backend
	var lowest level
	ties := 0
	for _, b := range t.backends {
		if !f.allows(b) {
			continue
		}
		switch l := b.level(); {
		case best == nil || l.below(lowest):
			best, lowest, ties = b, l, 1
		case l.equals(lowest):
			ties++
		}
	}
	if ties < 2 {
		return best
	}
	f.level = lowest
	if b := t.rotation.among(t, f, ties); b != nil {
		return b
	}
	return best // loads have changed meanwhile
}
