package offloadtest

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/offload"
	"github.com/baton-lb/baton/offload/bpf"
)

// Kernel is an offload.Kernel in plain memory. Start from New.
type Kernel struct {
	// Immutable.
	capacity int
	events   chan offload.Event
	done     chan struct{}

	mu      sync.Mutex // guards what follows
	added   func(*Flow)
	flows   map[*Flow]struct{}
	tuples  map[tuple]*Flow
	graces  int
	unparks int
	closed  bool
}

// tuple is a direction's packets as they arrive.
type tuple struct {
	proto    flow.Proto
	from, to netip.AddrPort
}

var _ offload.Kernel = (*Kernel)(nil)

// New makes a kernel with room for so many flows. Each new flow looks as if a packet
// with a timestamp had come from both sides.
func New(capacity int) *Kernel {
	return &Kernel{
		capacity: capacity, events: make(chan offload.Event, 1024), done: make(chan struct{}),
		flows: make(map[*Flow]struct{}), tuples: make(map[tuple]*Flow),
		added: func(f *Flow) {
			f.Update(func(s *bpf.FlowState) {
				for i := range s.Directions {
					s.Directions[i].HasAck, s.Directions[i].HasTSval = true, true
				}
			})
		},
	}
}

// OnAdd has f called with each new flow before Add returns: the place to say what its
// first packets have shown. nil = nothing is seen. It must not call the kernel.
func (k *Kernel) OnAdd(f func(*Flow)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.added = f
}

// Add implements offload.Kernel.
func (k *Kernel) Add(s bpf.FlowSpec, g bpf.Gate) (offload.Flow, error) {
	if len(s.Note) > bpf.NoteSize {
		return nil, fmt.Errorf("note of %d bytes", len(s.Note))
	}
	f := &Flow{kernel: k, spec: s, gates: []bpf.Gate{g}}
	f.state.Gate = g
	k.mu.Lock()
	defer k.mu.Unlock()
	there, back := f.tuples()
	switch {
	case k.closed:
		return nil, bpf.ErrClosed
	case k.tuples[there] != nil || k.tuples[back] != nil:
		return nil, fmt.Errorf("add flow: %w", bpf.ErrTaken)
	case len(k.flows) >= k.capacity:
		return nil, fmt.Errorf("add flow: %w", bpf.ErrFull)
	}
	k.flows[f] = struct{}{}
	k.tuples[there], k.tuples[back] = f, f
	if k.added != nil {
		k.added(f)
	}
	return f, nil
}

// All implements offload.Kernel.
func (k *Kernel) All() []offload.Flow {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []offload.Flow
	for f := range k.flows {
		all = append(all, f)
	}
	return all
}

// Flows is All as what they are.
func (k *Kernel) Flows() []*Flow {
	var all []*Flow
	for _, f := range k.All() {
		all = append(all, f.(*Flow))
	}
	return all
}

// Tell has ReadEvent return an event.
func (k *Kernel) Tell(e offload.Event) {
	select {
	case k.events <- e:
	case <-k.done:
	}
}

// ReadEvent implements offload.Kernel.
func (k *Kernel) ReadEvent() (offload.Event, error) {
	select {
	case e := <-k.events:
		return e, nil
	case <-k.done:
		return offload.Event{}, bpf.ErrClosed
	}
}

// Unpark implements offload.Kernel: nothing is ever held.
func (k *Kernel) Unpark(offload.Flow) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unparks++
	return 0, nil
}

// Grace implements offload.Kernel.
func (k *Kernel) Grace() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.graces++
	return nil
}

// Graces is how many grace periods there were.
func (k *Kernel) Graces() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.graces
}

// Close implements offload.Kernel. The flows live on: see Reopen.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.closed = true
		close(k.done)
	}
	return nil
}

// Reopen is the kernel as the next process finds it.
func (k *Kernel) Reopen() *Kernel {
	next := New(k.capacity)
	k.mu.Lock()
	defer k.mu.Unlock()
	for f := range k.flows {
		f.mu.Lock()
		there, back := f.tuples()
		again := &Flow{kernel: next, spec: f.spec, state: f.state, gates: []bpf.Gate{f.state.Gate}}
		f.mu.Unlock()
		next.flows[again] = struct{}{}
		next.tuples[there], next.tuples[back] = again, again
	}
	return next
}
