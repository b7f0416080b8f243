package sched

// rule says which backends a scheduler chooses from.
type rule uint8

const (
	healthy     rule = iota // those that take new flows
	unhealthy               // those that would if they were healthy: none is
	leaving                 // terminating, serving, healthy: there is nothing better
	leavingSick             // terminating, serving: there is nothing better
	nobody
)

// allows reports whether b is a candidate.
func (r rule) allows(b *Backend) bool {
	switch r {
	case healthy:
		return b.TakesNew()
	case unhealthy:
		return b.TakesNewIfHealthy()
	case leaving:
		return b.wanted() && b.Terminating && !b.Unhealthy
	case leavingSick:
		return b.wanted() && b.Terminating
	}
	return false
}

// ruleFor finds the first rule that allows any of the backends, and how many.
func ruleFor(backends []*Backend) (rule, int) {
	for r := healthy; r < nobody; r++ {
		n := 0
		for _, b := range backends {
			if r.allows(b) {
				n++
			}
		}
		if n > 0 {
			return r, n
		}
	}
	return nobody, 0
}

// filter is what keeps a candidate from taking one flow.
type filter struct {
	tried   []*Backend
	limited bool  // some candidate has a limit
	level   level // only those as loaded as this; the zero value = all
}

// free reports whether it keeps nobody from it.
func (f filter) free() bool { return !f.limited && len(f.tried) == 0 && f.level.weight == 0 }

func (f filter) allows(b *Backend) bool {
	if f.limited && b.Full() || wasTried(b, f.tried) {
		return false
	}
	return f.level.weight == 0 || b.level().equals(f.level)
}

// wasTried looks b up by address: what was tried may be of an older snapshot.
func wasTried(b *Backend, tried []*Backend) bool {
	for _, t := range tried {
		if t == b || t.Address == b.Address {
			return true
		}
	}
	return false
}
