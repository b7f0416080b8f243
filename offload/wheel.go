package offload

import (
	"sync"
	"time"
)

// wheel wakes things at a time, to within a tick. Setting and clearing take the same
// few nanoseconds however many there are: every flow that may be offloaded is in it,
// and most are gone before their time comes.
type wheel struct {
	// Immutable.
	wake   func()    // called when an alarm is set in an empty wheel
	origin time.Time // of ticks; with a monotonic reading

	mu    sync.Mutex // guards what follows
	slots [wheelSlots]alarm
	now   int64 // tick up to which all were taken out
	count int
}

const (
	wheelSlots = 512
	wheelTick  = 50 * time.Millisecond
)

// alarm is one thing to be woken. It is in one wheel at most.
type alarm struct {
	next, prev *alarm
	due        int64 // tick
	ring       func(now time.Time)
}

func newWheel(now time.Time, wake func()) *wheel {
	w := &wheel{wake: wake, origin: now}
	for i := range w.slots {
		s := &w.slots[i]
		s.next, s.prev = s, s
	}
	return w
}

func (w *wheel) tick(t time.Time) int64 { return int64(t.Sub(w.origin) / wheelTick) }

// set has a ring at the given time or soon after, and at no other.
func (w *wheel) set(a *alarm, at time.Time) {
	w.mu.Lock()
	w.removeLocked(a)
	a.due = max(w.tick(at)+1, w.now+1)
	w.insertLocked(a)
	first := w.count == 1
	w.mu.Unlock()
	if first {
		w.wake()
	}
}

func (w *wheel) insertLocked(a *alarm) {
	s := &w.slots[a.due%wheelSlots]
	a.prev, a.next = s.prev, s
	s.prev.next, s.prev = a, a
	w.count++
}

// clear forgets an alarm, which may not be set, or be about to ring.
func (w *wheel) clear(a *alarm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeLocked(a)
}

func (w *wheel) removeLocked(a *alarm) {
	if a.next == nil {
		return
	}
	a.prev.next, a.next.prev = a.next, a.prev
	a.next, a.prev = nil, nil
	w.count--
}

// advance rings every alarm that is due, and reports how many are left.
func (w *wheel) advance(now time.Time) int {
	due, left := w.take(now)
	for _, a := range due {
		a.ring(now)
	}
	return left
}

func (w *wheel) take(now time.Time) (due []*alarm, left int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := w.tick(now)
	// After a long sleep each slot is looked at once.
	for t := max(w.now+1, until-wheelSlots+1); t <= until; t++ {
		s := &w.slots[t%wheelSlots]
		for a := s.next; a != s; {
			next := a.next
			if a.due <= until {
				w.removeLocked(a)
				due = append(due, a)
			}
			a = next
		}
	}
	w.now = max(w.now, until)
	return due, w.count
}
