package poll

import (
	"container/heap"
	"math"
	"time"
)

// Timer calls Fire on the loop's goroutine once its time has come. It is part
// of the thing that it wakes; its zero value with Fire set is ready to use.
type Timer struct {
	Fire func()

	when  int64 // as Loop.Nano
	index int   // in the heap, +1; 0 = not armed
}

// Arm sets t to fire d from now, instead of when it was set to before. It never
// fires in the round that armed it.
func (l *Loop) Arm(t *Timer, d time.Duration) {
	d = max(1, min(d, math.MaxInt64-time.Duration(l.nowNano)))
	t.when = l.nowNano + int64(d)
	if t.index > 0 {
		heap.Fix(&l.timers, t.index-1)
		return
	}
	heap.Push(&l.timers, t)
}

// Disarm stops t. It may not be armed.
func (l *Loop) Disarm(t *Timer) {
	if t.index > 0 {
		heap.Remove(&l.timers, t.index-1)
	}
}

// timerHeap orders timers by time; it implements heap.Interface.
type timerHeap []*Timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].when < h[j].when }

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *timerHeap) Push(x any) {
	t := x.(*Timer)
	*h = append(*h, t)
	t.index = len(*h)
}

func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = 0
	return t
}

// next is when the first timer fires.
func (h timerHeap) next() (when int64, ok bool) {
	if len(h) == 0 {
		return 0, false
	}
	return h[0].when, true
}

// expire fires what is due. A timer that is armed again while it fires waits
// for the next round.
func (h *timerHeap) expire(now int64) {
	for len(*h) > 0 && (*h)[0].when <= now {
		t := heap.Pop(h).(*Timer)
		t.Fire()
	}
}
