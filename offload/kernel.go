package offload

import (
	"errors"

	"github.com/baton-lb/baton/offload/bpf"
)

// Kernel carries flows. BPF makes the real one; package offloadtest has one in plain
// memory. It may be used by several goroutines at once, and its words are those of
// package bpf.
type Kernel interface {
	// Add begins to watch a flow, or to carry it: both of its directions, or
	// neither. It wraps bpf.ErrTaken or bpf.ErrFull.
	Add(bpf.FlowSpec, bpf.Gate) (Flow, error)
	// All is every flow there is, those of an earlier process too.
	All() []Flow
	// ReadEvent waits for the next event. After Close it returns bpf.ErrClosed.
	ReadEvent() (Event, error)
	// Unpark puts back what was held for a flow, to go the way that its gate now
	// says, and returns how many packets that were. What met the gate just before
	// may not be there yet; after a Grace it is.
	Unpark(Flow) (int, error)
	// Grace returns when every packet that had met a gate before is where it was
	// going.
	Grace() error
	// Close lets go of the flows: they live on. No flow may be used any more.
	Close() error
}

// Flow is one flow in the kernel. Its methods do not block. It is comparable, and the
// same for as long as the flow is there.
type Flow interface {
	Spec() bpf.FlowSpec
	Gate() bpf.Gate
	SetGate(bpf.Gate) bool // false: a new flow has begun with its addresses
	State() bpf.FlowState
	SetRewrite(bpf.Direction, bpf.Rewrite)
	SetNext(d bpf.Direction, next, ack uint32)
	ForgetReset() // those that went to sockets
	SetNote([]byte) error
	Delete() error // more than once is no error
}

// Event is something that happened to a flow.
type Event struct {
	Flow      Flow
	What      bpf.Happening
	Direction bpf.Direction
}

var (
	_ Kernel = (*bpfKernel)(nil)
	_ Flow   = (*bpf.Flow)(nil)
)

// bpfKernel is the flows of package bpf, with a lot.
type bpfKernel struct {
	flows *bpf.Flows
	lot   *bpf.Lot
}

// BPF makes a Kernel of flows, and takes both over. Without a lot (nil) what is held
// is dropped, and comes a fifth of a second later.
func BPF(flows *bpf.Flows, lot *bpf.Lot) Kernel { return &bpfKernel{flows, lot} }

func (k *bpfKernel) Add(s bpf.FlowSpec, g bpf.Gate) (Flow, error) {
	f, err := k.flows.Add(s, g)
	if err != nil {
		return nil, err // not a nil *bpf.Flow
	}
	return f, nil
}

func (k *bpfKernel) All() []Flow {
	all := k.flows.All()
	list := make([]Flow, len(all))
	for i, f := range all {
		list[i] = f
	}
	return list
}

func (k *bpfKernel) ReadEvent() (Event, error) {
	e, err := k.flows.ReadEvent()
	if err != nil {
		return Event{}, err
	}
	return Event{Flow: e.Flow, What: e.What, Direction: e.Direction}, nil
}

func (k *bpfKernel) Unpark(f Flow) (int, error) {
	if k.lot == nil {
		return 0, nil
	}
	return k.lot.Release(f.(*bpf.Flow))
}

func (k *bpfKernel) Grace() error { return bpf.Grace() }

func (k *bpfKernel) Close() error {
	var err error
	if k.lot != nil {
		err = k.lot.Close()
	}
	return errors.Join(err, k.flows.Close())
}
