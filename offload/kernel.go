package offload

import (
	"net/netip"

	"github.com/baton-lb/baton/internal/flow"
)

// Kernel carries flows. Package bpf has the real one; package offloadtest has one in
// plain memory.
type Kernel interface {
	// Add begins to watch a flow, or to carry it: both of its directions, or
	// neither. It wraps ErrTaken or ErrFull.
	Add(FlowSpec, Gate) (Flow, error)
	// All is every flow there is, those of an earlier process too.
	All() []Flow
	// ReadEvent waits for the next event. It wraps ErrClosed in the end.
	ReadEvent() (Event, error)
	// Unpark puts back what was held for a flow, to go the way that the flow's gate
	// now says.
	Unpark(Flow) (int, error)
	// Grace returns when every packet that had passed a gate before is where it
	// was going.
	Grace() error
}

// FlowSpec is a flow as the kernel sees it.
type FlowSpec struct {
	Proto                            flow.Proto
	Client, Frontend, Local, Backend netip.AddrPort
	NoTimestamps, NoSACK             bool // to be left out of our SYN
	Note                             []byte
}

// Gate is what happens to packets of a flow.
type Gate uint32

// Flow is one flow in the kernel.
type Flow interface {
	Spec() FlowSpec
	SetGate(Gate)
	SetNote([]byte) error
	Delete() error
}

// Event is something that happened to a flow.
type Event struct{}
