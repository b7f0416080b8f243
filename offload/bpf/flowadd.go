package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/clock"
)

// What can stand in the way of a flow.
var (
	// ErrTaken says that another flow has a tuple of this one.
	ErrTaken = errors.New("addresses and ports are another flow's")

	// ErrFull says that there is no room for another flow.
	ErrFull = errors.New("table of flows is full")
)

// Add puts a flow into the kernel, both directions or none. From its return on no packet passes by unseen that arrives
// after a grace period: see Grace. The error may wrap ErrTaken, ErrFull or ErrFamily.
func (f *Flows) Add(s FlowSpec, g Gate) (_ *Flow, err error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("add flow: %w", err)
	}
	i, err := f.take()
	if err != nil {
		return nil, fmt.Errorf("add flow: %w", err)
	}
	w := f.prepare(i, s, g)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("add flow: %w", err), f.undo(w))
		}
	}()
	if err := f.maps.FlowNotes.Update(i, noteOf(s.Note), ebpf.UpdateAny); err != nil {
		return nil, full(err)
	}
	for d := range directions {
		err := f.addElement(s.tuple(d), s.element(d, i, w.generation))
		if err != nil {
			w.spec.Proto = 0 // nothing of it but what undo finds
			if d == ToClient {
				err = errors.Join(err, f.forgetElement(s.tuple(ToBackend)))
			}
			return nil, full(err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flows[i] = w
	return w, nil
}

func full(err error) error {
	switch {
	case errors.Is(err, ebpf.ErrKeyExist):
		return ErrTaken
	case errors.Is(err, unix.E2BIG), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// spentShare is which part of the slots has to be spent before somebody waits for them. Whoever adds a flow may be an event
// loop, and in a full table each would wait for the one slot that has just been given back.
const spentShare = 64

// take finds a slot that no program can be looking at.
func (f *Flows) take() (uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, ErrClosed
	}
	if len(f.free) == 0 && len(f.spent) >= max(1, f.capacity/spentShare) {
		if err := Grace(); err != nil {
			return 0, err
		}
		f.free, f.spent = f.spent, nil
	}
	if len(f.free) == 0 {
		return 0, ErrFull
	}
	i := f.free[len(f.free)-1]
	if err := f.memory.need(i); err != nil {
		return 0, err
	}
	f.free = f.free[:len(f.free)-1]
	return i, nil
}

// prepare fills a slot, whose generation becomes odd.
func (f *Flows) prepare(i uint32, s FlowSpec, g Gate) *Flow {
	at := f.memory.slot(i)
	generation := at.Generation + 1
	*at = flowSlot{Gate: flowGate(g), Generation: generation, Protocol: uint8(s.Proto), AddedAt: uint64(clock.Monotonic())}
	if s.NoTimestamps {
		at.Mirror |= flowMirrorMIRROR_NO_TIMESTAMPS
	}
	if s.NoSACK {
		at.Mirror |= flowMirrorMIRROR_NO_SACK
	}
	s.Note = nil
	return &Flow{flows: f, spec: s, slot: i, generation: generation, at: at}
}

// undo gives back what a flow has that was not added. Its elements are gone.
func (f *Flows) undo(w *Flow) error {
	w.deleted.Store(true)
	err := forget(f.maps.FlowNotes, w.slot)
	f.release(w)
	return err
}

// release takes a flow's slot back when its elements are gone.
func (f *Flows) release(w *Flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	if f.flows[w.slot] == w {
		delete(f.flows, w.slot)
	}
	w.at.Generation++
	f.spent = append(f.spent, w.slot)
}

// adopt finds the flows that the maps hold. What was half made or half deleted is deleted.
func (f *Flows) adopt() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, odd, err := f.find()
	if err != nil {
		return err
	}
	for _, t := range odd {
		if err := f.forgetElement(t); err != nil {
			return fmt.Errorf("delete half a flow: %w", err)
		}
	}
	f.flows = found
	for chunk := f.capacity / chunkSlots; chunk >= 0; chunk-- {
		if err := f.sift(chunk); err != nil {
			return err
		}
	}
	return nil
}

// sift tells which slots of a chunk are free. The lowest are taken first, so that few chunks are mapped.
func (f *Flows) sift(chunk int) error {
	first, last := uint32(max(1, chunk*chunkSlots)), uint32(min(f.capacity, (chunk+1)*chunkSlots-1))
	used := false
	for i := last; i >= first; i-- {
		if f.flows[i] != nil {
			used = true
			continue
		}
		if err := f.memory.need(i); err != nil {
			return err
		}
		if at := f.memory.slot(i); at.Generation%2 != 0 {
			at.Generation++
			if err := forget(f.maps.FlowNotes, i); err != nil {
				return fmt.Errorf("delete half a flow: %w", err)
			}
			f.spent = append(f.spent, i)
			continue
		}
		f.free = append(f.free, i)
	}
	if !used {
		f.memory.drop(chunk)
	}
	return nil
}

// find reads the elements: whole flows by slot, and the tuples of what is not whole.
func (f *Flows) find() (map[uint32]*Flow, []flowTuple, error) {
	var (
		seen  = make(map[flowTuple]flowElement6)
		found = make(map[uint32]*Flow)
		odd   []flowTuple
	)
	err := f.eachElement(anyElement, func(t flowTuple, e flowElement6) bool {
		if !e.steered() {
			seen[t] = e
		}
		return true
	})
	if err != nil {
		return nil, nil, err
	}
	for t, e := range seen {
		if err := f.memory.need(min(e.Whose.Of, uint32(f.capacity))); err != nil {
			return nil, nil, err
		}
		if w := f.whole(t, e, seen); w == nil {
			odd = append(odd, t)
		} else if e.Whose.Direction == uint8(ToBackend) {
			found[e.Whose.Of] = w
		}
	}
	return found, odd, nil
}

// whole makes the flow of an element, if the element of the other direction and the slot belong to it.
func (f *Flows) whole(t flowTuple, e flowElement6, seen map[flowTuple]flowElement6) *Flow {
	back := flowTuple{
		Source: e.Destination, SourcePort: e.DestinationPort, Destination: e.Source, DestinationPort: e.SourcePort,
		Protocol: t.Protocol,
	}
	other, ok := seen[back]
	if !ok || other.Whose.Of != e.Whose.Of || other.Whose.Generation != e.Whose.Generation || other.Whose.Direction == e.Whose.Direction {
		return nil
	}
	slot, generation := e.Whose.Of, e.Whose.Generation
	if slot == 0 || int(slot) > f.capacity {
		return nil
	}
	at := f.memory.slot(slot)
	if at.Generation != generation || at.Protocol != t.Protocol {
		return nil
	}
	spec := specOf(t, e)
	spec.NoTimestamps = at.Mirror&flowMirrorMIRROR_NO_TIMESTAMPS != 0
	spec.NoSACK = at.Mirror&flowMirrorMIRROR_NO_SACK != 0
	return &Flow{flows: f, spec: spec, slot: slot, generation: generation, at: at}
}
