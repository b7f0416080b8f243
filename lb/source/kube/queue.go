package kube

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// queue holds what has come and is not translated yet: of each object the newest.
type queue struct {
	wake chan struct{} // has one when there may be something to take

	mu    sync.Mutex // guards what follows
	next  batch
	taken Counts    // what has come of all that was taken
	whole bool      // everything that there was at the start has come
	last  time.Time // when something came last; zero = never
}

// Counts is how many of something there are, of Services and of slices.
type Counts struct{ Services, Slices int }

func (c *Counts) add(d Counts) {
	c.Services += d.Services
	c.Slices += d.Slices
}

// batch is what has come together.
type batch struct {
	services map[types.NamespacedName]*Service // nil = it is gone, or not for us
	slices   map[types.NamespacedName]*Slice   // the same
	node     *Node                             // nil = nothing new
	faults   map[string][]Fault                // of reading files, by file
	since    time.Time                         // when the first of it came; zero = there is nothing
	came     Counts                            // objects, however often each
	reloaded bool                              // it is what Reload has asked for
}

// objects is how many a batch changes.
func (b *batch) objects() Counts { return Counts{len(b.services), len(b.slices)} }

func (b *batch) setService(k types.NamespacedName, s *Service) {
	b.services[k] = s
	b.came.Services++
}

func (b *batch) setSlice(k types.NamespacedName, s *Slice) {
	b.slices[k] = s
	b.came.Slices++
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// add changes what is to be taken next.
func (q *queue) add(change func(*batch)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last = time.Now()
	if q.next.since.IsZero() {
		q.next.since = q.last
		q.next.services = make(map[types.NamespacedName]*Service)
		q.next.slices = make(map[types.NamespacedName]*Slice)
		q.next.faults = make(map[string][]Fault)
	}
	change(&q.next)
	q.wakeLocked()
}

func (q *queue) setService(k types.NamespacedName, s *Service) {
	q.add(func(b *batch) { b.setService(k, s) })
}

func (q *queue) setSlice(k types.NamespacedName, s *Slice) {
	q.add(func(b *batch) { b.setSlice(k, s) })
}

func (q *queue) setNode(n *Node) { q.add(func(b *batch) { b.node = n }) }

// complete says that everything that there was at the start has come. Nothing is
// taken before: half of a cluster is none.
func (q *queue) complete() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.whole = true
	q.wakeLocked()
}

func (q *queue) wakeLocked() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take takes all that has come; false: there is nothing to be taken yet.
func (q *queue) take() (b batch, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.whole {
		return batch{}, false
	}
	b, q.next = q.next, batch{}
	q.taken.add(b.came)
	return b, true
}

// counts is how many objects have come in all, and of how many the newest waits.
func (q *queue) counts() (came, waiting Counts) {
	q.mu.Lock()
	defer q.mu.Unlock()
	came = q.taken
	came.add(q.next.came)
	return came, q.next.objects()
}

// times are when something came last, and since when something waits. Zero =
// never, and nothing does.
func (q *queue) times() (last, waiting time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last, q.next.since
}
