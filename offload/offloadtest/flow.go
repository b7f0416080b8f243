package offloadtest

import (
	"bytes"
	"slices"
	"sync"

	"github.com/baton-lb/baton/offload"
	"github.com/baton-lb/baton/offload/bpf"
)

// Flow is a flow of a Kernel.
type Flow struct {
	kernel *Kernel

	mu      sync.Mutex // guards what follows
	spec    bpf.FlowSpec
	state   bpf.FlowState
	gates   []bpf.Gate // that it has had
	deleted bool
}

var _ offload.Flow = (*Flow)(nil)

func (f *Flow) tuples() (there, back tuple) {
	s := &f.spec
	return tuple{s.Proto, s.Client, s.Frontend}, tuple{s.Proto, s.Backend, s.Local}
}

// Spec implements offload.Flow. As in a kernel, the note is filled up with zeros.
func (f *Flow) Spec() bpf.FlowSpec {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.spec
	s.Note = make([]byte, bpf.NoteSize)
	copy(s.Note, f.spec.Note)
	return s
}

// Gate implements offload.Flow.
func (f *Flow) Gate() bpf.Gate { return f.State().Gate }

// SetGate implements offload.Flow.
func (f *Flow) SetGate(g bpf.Gate) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.Gate == bpf.GateStale {
		return false
	}
	f.state.Gate = g
	f.gates = append(f.gates, g)
	return true
}

// Gates is every gate that the flow has had, in their order.
func (f *Flow) Gates() []bpf.Gate {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.gates)
}

// State implements offload.Flow.
func (f *Flow) State() bpf.FlowState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Update changes what the kernel has seen.
func (f *Flow) Update(change func(*bpf.FlowState)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.state)
}

// SetRewrite implements offload.Flow.
func (f *Flow) SetRewrite(d bpf.Direction, r bpf.Rewrite) {
	f.Update(func(s *bpf.FlowState) { s.Directions[d].Rewrite = r })
}

// SetNext implements offload.Flow.
func (f *Flow) SetNext(d bpf.Direction, next, ack uint32) {
	f.Update(func(s *bpf.FlowState) {
		p := &s.Directions[d]
		p.HasEnd, p.End, p.HasAck, p.Ack = true, next, true, ack
	})
}

// ForgetReset implements offload.Flow.
func (f *Flow) ForgetReset() {
	f.Update(func(s *bpf.FlowState) {
		for d := range s.Directions {
			s.Directions[d].Reset = false
		}
	})
}

// SetNote implements offload.Flow.
func (f *Flow) SetNote(b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spec.Note = bytes.Clone(b)
	return nil
}

// Delete implements offload.Flow.
func (f *Flow) Delete() error {
	k := f.kernel
	k.mu.Lock()
	defer k.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if k.closed {
		return bpf.ErrClosed
	}
	if !f.deleted {
		f.deleted = true
		there, back := f.tuples()
		delete(k.flows, f)
		delete(k.tuples, there)
		delete(k.tuples, back)
	}
	return nil
}
