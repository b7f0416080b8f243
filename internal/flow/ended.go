package flow

import "sync"

// endedRing remembers the last flows that ended.
type endedRing struct {
	max int

	mu   sync.Mutex // guards what follows
	v    []View
	next int // where the next one goes, once v is full
}

func (e *endedRing) add(v View) {
	if e.max <= 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.v) < e.max {
		e.v = append(e.v, v)
		return
	}
	e.v[e.next] = v
	e.next = (e.next + 1) % e.max
}

// views copies the ring, the newest first.
func (e *endedRing) views() []View {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]View, 0, len(e.v))
	for i := range e.v {
		out = append(out, e.v[(e.next+len(e.v)-1-i)%len(e.v)])
	}
	return out
}
