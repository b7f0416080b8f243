package flow

import (
	"sync"
	"sync/atomic"
)

// Subscription receives events of flows.
type Subscription struct {
	C <-chan Event // closed by Close

	hub    *hub
	c      chan Event
	match  func(*View) bool
	missed atomic.Uint64
	closed bool // guarded by hub.mu
}

// Missed is how many events were dropped because C was full.
func (s *Subscription) Missed() uint64 { return s.missed.Load() }

// Close ends the subscription. It may be called more than once.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	delete(s.hub.subs, s)
	s.hub.count.Add(-1)
	close(s.c)
}

// hub hands events to subscribers. It never waits for one: what does not fit
// is dropped and counted.
type hub struct {
	count atomic.Int32
	drops *dropCounts

	mu   sync.RWMutex // guards what follows
	subs map[*Subscription]struct{}
}

func (h *hub) listening() bool { return h.count.Load() > 0 }

// subscribe delivers the events of flows that match (nil = all), with room for
// buffer of them in advance.
func (h *hub) subscribe(match func(*View) bool, buffer int) *Subscription {
	c := make(chan Event, buffer)
	s := &Subscription{C: c, c: c, hub: h, match: match}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = make(map[*Subscription]struct{})
	}
	h.subs[s] = struct{}{}
	h.count.Add(1)
	return s
}

func (h *hub) publish(e Event) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for s := range h.subs {
		if s.match != nil && !s.match(&e.about) {
			continue
		}
		select {
		case s.c <- e:
		default:
			s.missed.Add(1)
			h.drops.count(DropEvents)
		}
	}
}
