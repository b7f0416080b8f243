package store

import (
	"cmp"

	"github.com/baton-lb/baton/lb"
)

// better reports whether a is the one to use when a and b are the same address
// listed twice: the one that can do more, whatever the order of the list. So a
// backend that is listed as draining and as ready is ready.
func better(a, b *lb.Backend) bool {
	return cmp.Or(
		cmp.Compare(stateRank(a.State), stateRank(b.State)),
		compareBool(a.NotServing, b.NotServing),
		compareBool(a.Terminating, b.Terminating),
		compareBool(a.Weight == 0, b.Weight == 0),
		cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(b.Weight, a.Weight),
		compareBool(!a.Local, !b.Local),
		compareBool(a.Far, b.Far),
	) < 0
}

func stateRank(s lb.BackendState) int {
	switch s {
	case lb.StateReady:
		return 0
	case lb.StateDrain:
		return 1
	}
	return 2
}

// compareBool puts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
