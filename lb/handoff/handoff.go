package handoff

import (
	"net/netip"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// Offloader may take established flows over into the kernel. Its methods are
// called on event loops and must not block. One with a method None() bool that
// returns true never will, which is said of flows before they ask.
type Offloader interface {
	// Prepare returns the lease for one attempt to reach a backend, or nil
	// with the reason why the flow will stay in userspace.
	Prepare(Request) (Lease, flow.NotOffloaded)
	// Carry opens a way for a UDP session's datagrams beside its socket, or
	// returns nil with the reason why they stay in userspace.
	Carry(Session) (Carrier, flow.NotOffloaded)
}

// Request is one attempt of a TCP flow to reach a backend.
type Request struct {
	Record   *flow.Record
	Client   netip.AddrPort // who is at the other end of the client's socket: the client, or a proxy before us
	Frontend netip.AddrPort // the local address of that socket
	Backend  netip.AddrPort
	ClientFD int // that socket, to be looked at during the call only

	Policy   lb.Offload
	Timeouts lb.Timeouts

	// Transparent is the address that the backend is to see as the client's, if
	// that is to be kept (clientAddress: transparent); the lease says from which
	// address and port to dial either way.
	Transparent netip.AddrPort
}

// Lease is what an Offloader sets aside for one flow. Its methods are called on
// the flow's event loop and must not block.
type Lease interface {
	// Local is the address and port to dial from; the zero value leaves it to
	// the kernel, a port of 0 only the port, a zero address only the address.
	// Next, after a failure with EADDRNOTAVAIL or EADDRINUSE, moves on to
	// another; false = there is none.
	Local() netip.AddrPort
	Next() bool
	// Offer tells that both legs are established. The offloader may use the
	// pair until Release. hold asks that no byte moves until Pair.Resume or
	// Pair.HandedOff: the flow is to leave before its first one. Pair.Stop then
	// returns at once what there is.
	Offer(Pair) (hold bool)
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

// Pair is an established TCP flow as an Offloader sees it. It may be used from
// any goroutine but an event loop's; each call waits for the flow's loop.
// After Resume the kernel watches over both peers again (SO_KEEPALIVE,
// TCP_USER_TIMEOUT).
type Pair interface {
	Record() *flow.Record
	// Stop makes the bytes stand still. It reports false when the flow has
	// ended. Until Resume or HandedOff the caller owns both descriptors and
	// must not close them; closing one sends a reset (SO_LINGER 0).
	Stop() (Stopped, bool)
	// Moved tells how many bytes the caller has delivered itself since Stop. It
	// comes before Resume; with HandedOff they may be in the path's counters
	// instead.
	Moved(toBackend, toClient uint64)
	// Resume lets the bytes flow again, beginning with what is left of what
	// Stop returned.
	Resume(toBackend, toClient []byte)
	// HandedOff gives both descriptors to the caller for good: the relay
	// forgets the flow without closing or resetting anything. The record goes
	// on living with path as its carrier.
	HandedOff(name flow.PathName, path flow.Path)
}

// Session is a UDP session with a backend.
type Session struct {
	Record   *flow.Record
	Client   netip.AddrPort // who sends
	Frontend netip.AddrPort // where to; answers come from there
	Source   netip.AddrPort // the session's own socket towards the backend
	Backend  netip.AddrPort
	Policy   lb.Offload
	Timeouts lb.Timeouts
}

// Carrier is a UDP session's way beside its socket. Counters is what has gone
// that way; the session adds it to its own and asks it whether datagrams still
// come.
type Carrier interface {
	Name() flow.PathName
	Counters() flow.Counters
	// Withdraw closes the way: from its return on every datagram goes to the
	// sockets again. The last counters are returned. It may be called more than
	// once.
	Withdraw() flow.Counters
}

// Kept is a UDP session that an offloader has carried since before this process:
// its data path makes the socket anew and goes on, or withdraws it.
type Kept struct {
	ID          flow.ID
	StartedAt   time.Time
	HandedOffAt time.Time // zero = not known
	Picked      flow.Picked
	Service     string
	Base        flow.Counters // what it had carried before it was given to Carrier
	Carrier     Carrier
	Session     // Record is nil; Policy and Timeouts are unset
}

// none is the Offloader of a host without kernel paths.
type none struct{}

// None keeps every flow in userspace.
var None Offloader = none{}

func (none) Prepare(r Request) (Lease, flow.NotOffloaded) { return nil, whyNone(r.Policy, true) }

func (none) Carry(s Session) (Carrier, flow.NotOffloaded) { return nil, whyNone(s.Policy, false) }

func (none) None() bool { return true }

func whyNone(policy lb.Offload, terminated bool) flow.NotOffloaded {
	switch {
	case policy.Mode == lb.OffloadNever:
		return flow.NotOffloadedNever
	case policy.Path == lb.OffloadPathFlowtable && terminated:
		return flow.NotOffloadedTerminated
	}
	return flow.NotOffloadedUnavailable
}
