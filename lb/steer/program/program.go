package program

import (
	"net/netip"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// Program is the kernel's side of mode steer. Its methods may be called from any goroutine; none waits for packets. An update is
// seen by packets at once, each update whole; what something names must have been told before it.
type Program interface {
	SetService(Service) error
	DeleteService(ServiceID) error // nothing names it any more, its flows are gone
	SetBackend(Backend) error
	DeleteBackend(BackendID) error // nothing names it any more, its flows are gone
	// SetPool replaces what is told of a pool. Its tickets stay, those of backends that take no new flows are skipped.
	SetPool(Pool) error
	DeletePool(PoolID) error
	SetSources(SourcesID, []Source) error // an empty list deletes it
	SetFrontend(Frontend) error
	DeleteFrontend(lb.FrontendKey) error

	// Tickets says how many choices of a pool have been used, one after the other, since it was made, and how many wait.
	Tickets(PoolID) (used uint64, waiting int)
	// Refill adds choices behind those that wait; it returns how many there was room for.
	Refill(PoolID, []BackendID) (int, error)
	// Flush takes back all choices that wait, and returns them.
	Flush(PoolID) ([]BackendID, error)

	// Beat says that the process is there. After BeatAge without it new flows are treated as Pool.Absent says.
	Beat()

	// Open is how many flows of a backend are open: TCP from its handshake to its end, UDP sessions.
	Open(BackendID) int64

	// Sessions is how many UDP sessions of a service there are.
	Sessions(ServiceID) int

	// Events calls f for what happens, from one goroutine at a time, and returns when the program is closed. What was lost because nobody
	// read fast enough is counted. Before it is called nothing is kept. The events are only valid during the call.
	Events(f func([]Event))
	// TellAll has everything told, and at once. Without it HalfShut is not, and where there are many connections Opened is only of
	// those that last for a while.
	TellAll(bool)
	// Asks calls f for the first packet of each flow at pools whose answer is ByPacket, one after the other, until the program is closed.
	// It may be called more than once for a flow. The error says why nobody is asked.
	Asks(f func(Ask) BackendID) error
	// Walk calls f for every flow there is, in no order and over no single moment, until it returns false. Those that are closed
	// are left out if they were seen after since, and of the others what went to the client may be missing.
	Walk(since uint64, f func(Flow) bool) error
	// Lookup finds a flow by its identity.
	Lookup(Ref) (Flow, bool)
	// Delete forgets flows that still are what they were when they were read, unless a packet has come since and busy is not to be deleted. It returns how many.
	Delete(flows []Flow, alsoBusy bool) (int, error)
	// Reset ends a TCP flow: both sides' next packets are answered with a reset, and the flow is closed from now on.
	Reset(Ref) error

	// Adopted is what an earlier process has told and left: to be called first.
	Adopted() ([]Service, []Backend, []Pool, []Frontend, error)
	Counts() Counts
}

// Names of what the program is told. 0 is none.
type (
	ServiceID uint32
	BackendID uint32
	PoolID    uint32
	SourcesID uint32
)

// BeatAge is how long the process may be silent before it counts as absent.
const BeatAge = 300 * time.Millisecond

// Service is what is common to the flows of a service.
type Service struct {
	ID       ServiceID
	Name     string
	Affinity time.Duration // a client address stays at its backend for so long since its last new flow; 0 = it does not
	Times    Times

	Connections  uint32 // open flows at once, TCP; 0 = no limit
	Sessions     uint32 // the same, UDP
	NewPerSecond uint32 // 0 = no limit
}

// Times of a service's flows. Silence is of both directions together.
type Times struct {
	Opening    time.Duration // silence of a TCP flow whose handshake is not complete
	Idle       time.Duration // TCP
	HalfClosed time.Duration // TCP, one side has closed
	Closed     time.Duration // TCP, over: for late packets
	UDPIdle    time.Duration
}

// Backend is where a service's flows go.
type Backend struct {
	ID      BackendID
	Service ServiceID
	Address netip.AddrPort
	Takes   bool       // new flows; else only those that it has
	Limit   uint32     // open flows at once; 0 = none
	Masked  netip.Addr // from which clients reach it when their address is not kept
	Keep    Keep       // whose clients' address it may see
}

// Keep says which clients' addresses a backend may see, since its answers to them pass by here: those of clients that are next to
// us on another link than the backend, and ...
type Keep struct {
	Near   bool // those at all; else nobody's
	Far    bool // those behind a router on another link
	Beside bool // those behind a router on the link on which the backend is next to us
	// Bridged: those next to us on the same link, a bridge of this host. Their flows are left to the stack, which gets the answers.
	Bridged bool
}

// Pool is the backends that new flows of some clients at some frontends may go to.
type Pool struct {
	ID      PoolID
	Service ServiceID
	Answer  Answer
	// Table is a consistent choice: a flow goes to Table[hash % len] or, if that backend takes no new flows, one of those that follow. Empty = none.
	Table []BackendID
	// ByAddress has the client's port left out of that hash.
	ByAddress bool
	Absent    Absent
	Members   []BackendID // for affinity: a remembered backend that is none of these is not used
}

// Answer is what a new flow meets.
type Answer uint8

// The answers.
const (
	ToStack Answer = iota // as if the frontend were not told of
	Refuse                // a reset, an ICMP port unreachable
	Drop
	ByTicket // a choice that was made before; when there is none, by table
	ByTable
	ByPacket // the first packet goes to the process; beyond what it can take, and while it is absent, by table
)

// Absent is what a new flow meets while the process is absent.
type Absent uint8

// The choices.
const (
	LastKnown Absent = iota // tickets, then table, with what is known
	RefuseNew
)

// Frontend is where clients send to.
type Frontend struct {
	lb.FrontendKey
	Service ServiceID
	Outside PoolID    // for clients that Sources says nothing of
	Inside  PoolID    // for SourceInside; 0 = as Outside
	Sources SourcesID // 0 = everybody is outside
	Closed  Verdict   // of clients that Sources says nothing of: SourceOutside, SourceRefused or SourceDropped
	Keep    bool      // the address of clients that Sources says nothing of, where the backend allows it
}

// Source is a verdict about clients. The longest prefix counts.
type Source struct {
	Prefix  netip.Prefix
	Verdict Verdict
	Keep    bool // their address, where the backend allows it
}

// Verdict is what a client is.
type Verdict uint8

// The verdicts.
const (
	SourceOutside Verdict = iota
	SourceInside
	SourceRefused // reset, counted
	SourceDropped
)

// Ask is a flow that is to begin.
type Ask struct {
	Proto    flow.Proto
	Client   netip.AddrPort
	Frontend netip.AddrPort
	Pool     PoolID
}

// Answers to an Ask, else a backend.
const (
	NoAnswer BackendID = 0         // by table
	NoFlow   BackendID = 1<<32 - 1 // it is refused
)

// Ref is the identity of one flow, never of a later one with the same addresses.
type Ref struct {
	Proto    flow.Proto
	Client   netip.AddrPort
	Frontend netip.AddrPort
	Born     uint64 // CLOCK_MONOTONIC in ns of its first packet
}

// Flow is what the program knows of a flow.
type Flow struct {
	Ref
	Service  ServiceID
	Backend  BackendID
	Local    netip.AddrPort // where the backend sends: the client's address if that is kept
	Address  netip.AddrPort // of the backend
	State    State
	Picked   flow.Picked
	LastSeen uint64  // CLOCK_MONOTONIC in ns, either direction
	ClosedBy flow.By // who was first to say so; "" = nobody
	Reset    bool    // it ended by a reset
	Counters flow.Counters
}

// State of a flow.
type State uint8

// The states.
const (
	Opening State = iota // TCP: the handshake is not complete
	Open
	HalfClosed
	Closed
)

// Event is something that happened to a flow.
type Event struct {
	Kind Kind
	Flow Flow
	At   uint64 // CLOCK_MONOTONIC in ns
	Told bool   // Ended: so was Opened
	Open bool   // Ended: it was open before
}

// Kind of event.
type Kind uint8

// The kinds.
const (
	Opened   Kind = iota // it counts from now on: TCP with its handshake, UDP with its first datagram
	HalfShut             // one side has closed: Flow.ClosedBy
	Ended                // TCP: both have, or one has reset
	Failed               // an ICMP error says that the backend has not been reached; TCP: while it is opening
)

// Counts are of packets and flows, since the maps were made.
type Counts struct {
	Tickets, Tables, Affinity uint64 // flows by how their backend was chosen
	Refused, Dropped          uint64 // packets that were answered so because of their pool
	RefusedSource             uint64 // of clients that may not
	OverLimit                 uint64
	Full                      uint64 // flows there was no room for
	NoPort                    uint64 // no local port was free
	Stray                     uint64 // TCP packets of no flow, to the stack
	EventsLost                uint64
	Packets                   uint64 // flows whose backend was chosen at their first packet
	SentAway                  uint64 // flows that were refused by NoFlow
	Unasked                   uint64 // flows that the process was not asked for: it was away, or they were too many
}
