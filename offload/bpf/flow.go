package bpf

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
)

// Flow is a flow that the program knows. Its methods may be called by many goroutines; the words of its slot are read and
// written without system calls.
type Flow struct {
	// Immutable.
	flows      *Flows
	spec       FlowSpec // without its note
	slot       uint32
	generation uint32
	at         *flowSlot

	deleted atomic.Bool
}

// Spec is what the flow was added with, and its note as it is now.
func (f *Flow) Spec() FlowSpec {
	spec := f.spec
	var note flowNote
	if err := f.flows.maps.FlowNotes.Lookup(f.slot, &note); err == nil {
		spec.Note = note.Bytes[:]
	}
	return spec
}

// Gate is what becomes of the flow's packets now.
func (f *Flow) Gate() Gate {
	defer runtime.KeepAlive(f) // and with it the memory of its slot
	return Gate(atomic.LoadUint32((*uint32)(&f.at.Gate)))
}

// holding is what is forgotten when the gate begins to hold.
const holding = uint32(flowSeenSEEN_HELD | flowSeenSEEN_HELD_STAMP | flowSeenSEEN_HELD_RESET)

// SetGate sets it: one atomic store, a full barrier. A flow that is stale stays so; SetGate then reports false.
func (f *Flow) SetGate(g Gate) bool {
	defer runtime.KeepAlive(f)
	for {
		before := f.Gate()
		if before == GateStale {
			return false
		}
		if !before.holds() && g.holds() {
			for d := range f.at.Paths {
				atomic.AndUint32((*uint32)(&f.at.Paths[d].Track.Seen), ^holding)
			}
		}
		if atomic.CompareAndSwapUint32((*uint32)(&f.at.Gate), uint32(before), uint32(g)) {
			return true
		}
	}
}

func (g Gate) holds() bool { return g == GateDrain || g == GateFreeze }

// SetRewrite says what is added to the numbers of a direction. It is for the time before GateForward.
func (f *Flow) SetRewrite(d Direction, r Rewrite) {
	defer runtime.KeepAlive(f)
	f.at.Paths[d].Rewrite = flowRewrite{
		Sequence: r.Seq, Acknowledgement: r.Ack, TsValue: r.TSval, TsEcho: r.TSecr, Shift: r.Shift, Scale: r.Scale,
	}
}

// SetNext says where a direction stands: the number of its next byte, and the highest acknowledgement. From there on what
// is forwarded is counted, and judged. It is for the time while the gate is shut and nobody is half way through it.
func (f *Flow) SetNext(d Direction, next, ack uint32) {
	defer runtime.KeepAlive(f)
	t := &f.at.Paths[d].Track
	atomic.StoreUint32(&t.End, next)
	atomic.StoreUint32(&t.Acked, ack)
	atomic.OrUint32((*uint32)(&t.Seen), uint32(flowSeenSEEN_DATA|flowSeenSEEN_ACK))
}

// ForgetReset forgets that resets went to the stack. It is for the time while sockets have the flow, which alone know
// whether they have believed one.
func (f *Flow) ForgetReset() {
	defer runtime.KeepAlive(f)
	for d := range f.at.Paths {
		atomic.AndUint32((*uint32)(&f.at.Paths[d].Track.Seen), ^uint32(flowSeenSEEN_RESET))
	}
}

// SetNote replaces the note.
func (f *Flow) SetNote(note []byte) error {
	if len(note) > NoteSize {
		return fmt.Errorf("note of %d bytes: there is room for %d", len(note), NoteSize)
	}
	if f.deleted.Load() {
		return ErrClosed
	}
	if err := f.flows.maps.FlowNotes.Update(f.slot, noteOf(note), ebpf.UpdateAny); err != nil {
		return fmt.Errorf("keep note of flow: %w", err)
	}
	return nil
}

func noteOf(b []byte) *flowNote {
	var n flowNote
	copy(n.Bytes[:], b)
	return &n
}

// State copies what the program keeps for the flow.
func (f *Flow) State() (s FlowState) {
	defer runtime.KeepAlive(f)
	s.Gate, s.AddedAt = f.Gate(), time.Duration(f.at.AddedAt)
	for d := range s.Directions {
		s.Directions[d] = f.at.Paths[d].state()
	}
	return s
}

func (p *flowPath) state() DirectionState {
	leave := atomic.LoadUint32(&p.Track.Leave) // before the rest: what is equal was so all the time
	seen := atomic.LoadUint32((*uint32)(&p.Track.Seen))
	has := func(what flowSeen) bool { return seen&uint32(what) != 0 }
	return DirectionState{
		Rewrite: Rewrite{
			Seq: p.Rewrite.Sequence, Ack: p.Rewrite.Acknowledgement, TSval: p.Rewrite.TsValue, TSecr: p.Rewrite.TsEcho,
			Shift: p.Rewrite.Shift, Scale: p.Rewrite.Scale,
		},
		HasEnd: has(flowSeenSEEN_DATA), End: atomic.LoadUint32(&p.Track.End),
		HasAck: has(flowSeenSEEN_ACK), Ack: atomic.LoadUint32(&p.Track.Acked), Window: uint16(atomic.LoadUint32(&p.Track.Window)),
		HasTSval: has(flowSeenSEEN_TIMESTAMP), TSval: atomic.LoadUint32(&p.Track.TsValue),
		HasHeldTSval: has(flowSeenSEEN_HELD_STAMP), HeldTSval: atomic.LoadUint32(&p.Track.TsHeld),
		Held: has(flowSeenSEEN_HELD), HeldReset: has(flowSeenSEEN_HELD_RESET), Dirty: has(flowSeenSEEN_DIRTY),
		FIN: has(flowSeenSEEN_FIN), FINAcked: has(flowSeenSEEN_FIN_ACKED), FINEnd: atomic.LoadUint32(&p.Track.Fin),
		Reset: has(flowSeenSEEN_RESET), Forwarded: has(flowSeenSEEN_FORWARDED),
		Packets: atomic.LoadUint64(&p.Carried.Packets), Bytes: atomic.LoadUint64(&p.Carried.Bytes),
		At:    time.Duration(atomic.LoadUint64(&p.Carried.At)),
		Enter: atomic.LoadUint32(&p.Track.Enter), Leave: leave,
	}
}

// Delete takes the flow out of the kernel: its packets are nobody's then, and go to the stack. It may be called more than
// once.
func (f *Flow) Delete() error {
	if f.deleted.Swap(true) {
		return nil
	}
	errs := []error{
		f.flows.forgetElement(f.spec.tuple(ToBackend)),
		f.flows.forgetElement(f.spec.tuple(ToClient)),
		forget(f.flows.maps.FlowNotes, f.slot),
	}
	f.flows.release(f)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete flow: %w", err)
	}
	return nil
}
