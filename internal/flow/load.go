package flow

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// Load is what one backend of one service carries, on all paths. It outlives
// reloads: while flows are open or somebody holds it, the same service and
// address get the same Load, so that flows of a backend that went and came back
// are still counted.
type Load struct {
	flows    atomic.Int64
	planned  atomic.Int64 // see Plan
	failures atomic.Uint64
	streak   streak
	timedOut atomic.Bool  // the last failure was a timeout
	told     atomic.Bool  // it is in Registry.Failing, or was and has not been read
	refs     atomic.Int32 // changed under loads.mu
	key      loadKey
}

// Flows is the number of open flows.
func (l *Load) Flows() int64 { return l.flows.Load() }

// Plan counts n flows more, or less, that are to come: they have been given to the
// backend and have not begun.
func (l *Load) Plan(n int64) { l.planned.Add(n) }

// Planned is how many flows are to come.
func (l *Load) Planned() int64 { return l.planned.Load() }

// Failures is how many attempts to reach the backend failed by its own fault.
func (l *Load) Failures() uint64 { return l.failures.Load() }

// reserve counts one more open flow unless there are already limit of them
// (0 = no limit).
func (l *Load) reserve(limit int) bool {
	for {
		n := l.flows.Load()
		if limit > 0 && n >= int64(limit) {
			return false
		}
		if l.flows.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

type loadKey struct {
	service string
	backend netip.AddrPort
}

// loads is the registry's table of Load by service and backend.
type loads struct {
	mu sync.Mutex
	m  map[loadKey]*Load
}

// acquire returns the Load of a backend, made when it is new.
func (t *loads) acquire(service string, backend netip.AddrPort) *Load {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := loadKey{service, backend}
	l := t.m[k]
	if l == nil {
		l = &Load{key: k}
		if t.m == nil {
			t.m = make(map[loadKey]*Load)
		}
		t.m[k] = l
	}
	l.refs.Add(1)
	return l
}

// release gives a Load back.
func (t *loads) release(l *Load) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.refs.Add(-1)
	t.forgetLocked(l)
}

// opened counts one open flow more, within the limit. A flow may open on a Load
// that was let go just before; it is listed again then.
func (t *loads) opened(l *Load, limit int) bool {
	if !l.reserve(limit) {
		return false
	}
	if l.refs.Load() > 0 {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m[l.key] == nil && l.flows.Load() > 0 {
		t.m[l.key] = l
	}
	return true
}

// closed counts one open flow less.
func (t *loads) closed(l *Load) {
	if l.flows.Add(-1) > 0 || l.refs.Load() > 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(l)
}

// forgetLocked drops a Load that nobody holds and no flow uses.
func (t *loads) forgetLocked(l *Load) {
	if l.refs.Load() == 0 && l.flows.Load() == 0 && t.m[l.key] == l {
		delete(t.m, l.key)
	}
}
