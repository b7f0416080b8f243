package relay

import (
	"net/netip"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// Offloader may take established flows over into the kernel. It is asked before
// a backend is dialled, because a flow that is to leave userspace must use a
// local address and port that the offloader knows and nobody else will take.
//
// Prepare is called on an event loop and must not block.
type Offloader interface {
	// Prepare returns the lease for one attempt to reach a backend, or nil
	// with the reason why the flow will stay in userspace.
	Prepare(k flow.Key, backend netip.AddrPort, policy lb.Offload) (Lease, flow.NotOffloaded)
}

// Lease is what an Offloader sets aside for one flow. Its methods are called on
// the flow's event loop and must not block.
type Lease interface {
	// Local is the address and port to dial from; the zero value leaves it to
	// the kernel, a port of 0 only the port. Next, after a failure with
	// EADDRNOTAVAIL or EADDRINUSE, moves on to another; false = there is none.
	Local() netip.AddrPort
	Next() bool
	// Offer tells that both legs are established. The offloader may use the
	// pair until Release.
	Offer(Pair)
	// Release gives the lease back: the flow has ended or the dial failed.
	// After Pair.HandedOff it is not called: the lease stays with the flow.
	Release(flow.Reason)
}

// Stopped is a pair whose bytes stand still. What was read on one side and not
// yet written on the other is in ToBackend and ToClient.
type Stopped struct {
	ClientFD, BackendFD int
	ToBackend, ToClient []byte
	ClientEOF           bool // the client has closed its direction
	BackendEOF          bool
}

// Pair is an established flow as an Offloader sees it. It may be used from any
// goroutine but an event loop's; each call waits for the flow's loop.
type Pair interface {
	Record() *flow.Record
	// Stop makes the bytes stand still. It reports false when the flow has
	// ended. Until Resume or HandedOff the caller owns both descriptors and
	// must not close them; closing one sends a reset (SO_LINGER 0).
	Stop() (Stopped, bool)
	// Resume lets the bytes flow again, beginning with what is left of what
	// Stop returned.
	Resume(toBackend, toClient []byte)
	// HandedOff gives both descriptors to the caller for good: the relay
	// forgets the flow without closing or resetting anything. The record goes
	// on living with path as its carrier.
	HandedOff(name flow.PathName, path flow.Path)
}

// noOffload is the Offloader of a host without kernel paths.
type noOffload struct{}

// NoOffload keeps every flow in userspace.
var NoOffload Offloader = noOffload{}

func (noOffload) Prepare(_ flow.Key, _ netip.AddrPort, policy lb.Offload) (Lease, flow.NotOffloaded) {
	switch {
	case policy.Mode == lb.OffloadNever:
		return nil, flow.NotOffloadedNever
	case policy.Path == lb.OffloadPathFlowtable:
		return nil, flow.NotOffloadedTerminated
	}
	return nil, flow.NotOffloadedUnavailable
}
