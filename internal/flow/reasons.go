package flow

// The closed lists of words that say what happened and why. JSON, tables, metric
// labels and docs/contract.md use them; a new word is added here and nowhere else.

// Mode is how a service carries its flows.
type Mode string

// The modes of a service.
const (
	ModeProxy Mode = "proxy" // terminated here, perhaps handed to the kernel later
	ModeSteer Mode = "steer" // nothing terminated: chosen at the first packet
)

// NotSteered says why a service, or a frontend of one, is proxied where steering was asked for.
type NotSteered string

// What is in the way of steering.
const (
	NotSteeredClientAddress NotSteered = "client-address" // a PROXY header for backends
	NotSteeredAcceptProxy   NotSteered = "accept-proxy"   // a PROXY header of clients
	NotSteeredChoose        NotSteered = "choose"         // steer.choose cannot do what balance or limits ask for
	NotSteeredFrontend      NotSteered = "frontend"       // it is at all addresses of the host, or of a protocol that is not steered
	NotSteeredKernel        NotSteered = "kernel"         // this host has no kernel path
)

// NotSteeredReasons lists every NotSteered.
var NotSteeredReasons = []NotSteered{
	NotSteeredClientAddress, NotSteeredAcceptProxy, NotSteeredChoose, NotSteeredFrontend, NotSteeredKernel,
}

// PathName is what carries a flow's packets.
type PathName string

// The paths.
const (
	PathUserspace PathName = "userspace"
	PathBPF       PathName = "bpf"
	PathFlowtable PathName = "flowtable"
	PathKernel    PathName = "kernel"
)

// Paths lists every PathName.
var Paths = []PathName{PathUserspace, PathBPF, PathFlowtable, PathKernel}

// State is where a flow stands in its life:
//
//	dialing → established → half-closed → ended
//	             ↓  ↑
//	         handing-off → offloaded → ended
//
// A UDP session goes from established to offloaded and back.
type State string

// The states of a flow.
const (
	Dialing     State = "dialing"
	Established State = "established"
	HalfClosed  State = "half-closed"
	HandingOff  State = "handing-off"
	Offloaded   State = "offloaded"
	Ended       State = "ended"
)

// States lists every State.
var States = []State{Dialing, Established, HalfClosed, HandingOff, Offloaded, Ended}

// Picked says what chose the backend.
type Picked string

// What can choose a backend.
const (
	ByAlgorithm Picked = "algorithm"
	ByAffinity  Picked = "affinity"
	ByRetry     Picked = "retry" // an earlier choice could not be reached
)

// By is who ended a flow.
type By string

// Who can end a flow.
const (
	ByClient  By = "client"
	ByBackend By = "backend"
	ByBaton   By = "baton"
)

// Reason is why a flow ended.
type Reason string

// Why flows end.
const (
	ReasonClosed         Reason = "closed"           // both sides closed; by = who closed first
	ReasonReset          Reason = "reset"            // a peer sent a reset
	ReasonIdle           Reason = "idle-timeout"     // no byte for timeouts.idle
	ReasonHalfClosedIdle Reason = "half-closed-idle" // no byte for timeouts.halfClosed after one side closed
	ReasonPeerLost       Reason = "peer-lost"        // keepalive or TCP_USER_TIMEOUT gave up on a peer
	ReasonNoBackend      Reason = "no-backend"       // no backend could take the flow
	ReasonDialFailed     Reason = "dial-failed"      // every backend tried refused or timed out
	ReasonLocalResources Reason = "local-resources"  // this host ran out of ports, descriptors or memory
	ReasonDenied         Reason = "denied"           // allow, deny or source ranges
	ReasonLimit          Reason = "limit"            // limits of the service
	ReasonProxyHeader    Reason = "bad-proxy-header" // acceptProxy: no header, or a wrong one
	ReasonBackendRemoved Reason = "backend-removed"  // onBackendRemoved: reset
	ReasonDrainTimeout   Reason = "drain-timeout"    // onBackendRemoved: drain, or a shutdown, and time was up
	ReasonServiceRemoved Reason = "service-removed"  // its service or frontend is gone
	ReasonAdminReset     Reason = "admin-reset"      // baton reset
	ReasonShutdown       Reason = "shutdown"         // the process stopped and did not wait
	ReasonNetworkError   Reason = "network-error"    // the network reported an error (unreachable, …)
	ReasonEvicted        Reason = "evicted"          // made room for a newer flow
)

// Reasons lists every Reason.
var Reasons = []Reason{
	ReasonClosed, ReasonReset, ReasonIdle, ReasonHalfClosedIdle, ReasonPeerLost, ReasonNoBackend,
	ReasonDialFailed, ReasonLocalResources, ReasonDenied, ReasonLimit, ReasonProxyHeader,
	ReasonBackendRemoved, ReasonDrainTimeout, ReasonServiceRemoved, ReasonAdminReset, ReasonShutdown,
	ReasonNetworkError, ReasonEvicted,
}

// NotOffloaded is why a flow stays in userspace.
type NotOffloaded string

// Why flows stay in userspace.
const (
	NotOffloadedNever       NotOffloaded = "never"        // offload.mode: never
	NotOffloadedUnavailable NotOffloaded = "unavailable"  // no kernel path on this host
	NotOffloadedTerminated  NotOffloaded = "terminated"   // path: flowtable cannot carry a terminated TCP flow
	NotOffloadedWaiting     NotOffloaded = "waiting"      // not yet as old and as big as offload.afterAge and afterBytes ask
	NotOffloadedPeerGone    NotOffloaded = "closing"      // one side has closed or reset
	NotOffloadedHostLocal   NotOffloaded = "host-local"   // the client or the backend is a process of this host
	NotOffloadedNoPort      NotOffloaded = "no-port"      // no source port of ours is free towards the backend
	NotOffloadedTableFull   NotOffloaded = "table-full"   // the kernel's table of flows is full
	NotOffloadedTaken       NotOffloaded = "taken"        // another flow in the kernel has the same addresses and ports
	NotOffloadedUnseen      NotOffloaded = "unseen"       // its packets do not pass the devices that are watched
	NotOffloadedBusy        NotOffloaded = "busy"         // no quiet moment was found
	NotOffloadedTimestamps  NotOffloaded = "timestamps"   // TCP timestamps on one side only
	NotOffloadedSACK        NotOffloaded = "sack"         // selective acknowledgements on one side only
	NotOffloadedECN         NotOffloaded = "ecn"          // ECN on a side
	NotOffloadedMSS         NotOffloaded = "mss"          // segments of one side do not fit the other's way
	NotOffloadedWindow      NotOffloaded = "window"       // a window would round to nothing under the other side's scale
	NotOffloadedOption      NotOffloaded = "tcp-option"   // a socket uses something that cannot be taken over (MPTCP, MD5, AO, TLS in the kernel)
	NotOffloadedHeader      NotOffloaded = "proxy-header" // every datagram carries a PROXY header
	NotOffloadedDevice      NotOffloaded = "device"       // the way out is a device that cannot be used
	NotOffloadedFailed      NotOffloaded = "failed"       // the kernel refused
)

// NotOffloadedReasons lists every NotOffloaded.
var NotOffloadedReasons = []NotOffloaded{
	NotOffloadedNever, NotOffloadedUnavailable, NotOffloadedTerminated, NotOffloadedWaiting,
	NotOffloadedPeerGone, NotOffloadedHostLocal, NotOffloadedNoPort, NotOffloadedTableFull, NotOffloadedTaken,
	NotOffloadedUnseen, NotOffloadedBusy, NotOffloadedTimestamps, NotOffloadedSACK, NotOffloadedECN,
	NotOffloadedMSS, NotOffloadedWindow, NotOffloadedOption, NotOffloadedHeader, NotOffloadedDevice,
	NotOffloadedFailed,
}

// ClientAddress is which address of the client a backend sees, where its service
// asks to keep it.
type ClientAddress string

// What a backend may see.
const (
	ClientTransparent ClientAddress = "transparent"  // the client's address and port
	ClientPortChanged ClientAddress = "port-changed" // the client's address; its port was taken
	ClientMasked      ClientAddress = "masked"       // an address of this host: NotTransparent says why
)

// ClientAddresses lists every ClientAddress.
var ClientAddresses = []ClientAddress{ClientTransparent, ClientPortChanged, ClientMasked}

// NotTransparent is why a backend does not see its client's address, though its
// service asks for that.
type NotTransparent string

// Why clients' addresses are masked.
const (
	NotTransparentUnavailable NotTransparent = "unavailable" // this host cannot do it
	NotTransparentFamily      NotTransparent = "family"      // the backend's address is of the other family
	NotTransparentHairpin     NotTransparent = "hairpin"     // the client's host is the backend
	NotTransparentHostLocal   NotTransparent = "host-local"  // the client or the backend is a process of this host
	NotTransparentOtherWay    NotTransparent = "other-way"   // answers would not pass by this host
	NotTransparentOutside     NotTransparent = "outside"     // the client is none of those whose address the frontend keeps
)

// NotTransparentReasons lists every NotTransparent.
var NotTransparentReasons = []NotTransparent{
	NotTransparentUnavailable, NotTransparentFamily, NotTransparentHairpin, NotTransparentHostLocal, NotTransparentOtherWay,
	NotTransparentOutside,
}

// HandoffResult is how one attempt to hand a flow over to the kernel ended.
type HandoffResult string

// How handoffs end.
const (
	HandoffDone    HandoffResult = "done"
	HandoffBusy    HandoffResult = "busy"    // no quiet moment: it may be tried again
	HandoffRefused HandoffResult = "refused" // the flow is not eligible: notOffloaded says why
	HandoffEnded   HandoffResult = "ended"   // the flow ended meanwhile
	HandoffFailed  HandoffResult = "failed"  // the kernel refused a step
)

// HandoffResults lists every HandoffResult.
var HandoffResults = []HandoffResult{HandoffDone, HandoffBusy, HandoffRefused, HandoffEnded, HandoffFailed}

// Drop is why something was thrown away before it became a flow, or in the kernel.
type Drop string

// Why clients are turned away, or work is dropped.
const (
	DropDenied        Drop = "denied"             // allow, deny or source ranges; of these the guard counts packets
	DropLimit         Drop = "limit"              // limits.connections
	DropLimitClient   Drop = "limit-per-client"   // limits.perClient
	DropLimitRate     Drop = "limit-rate"         // limits.newPerSecond
	DropNoBackend     Drop = "no-backend"         // the last usable backend went while the client connected
	DropNoFrontend    Drop = "no-frontend"        // the frontend went while the client connected
	DropNoUsable      Drop = "no-usable-backends" // the guard refused or swallowed it at a frontend without any
	DropClosedPort    Drop = "closed-port"        // the guard refused it at a VIP's port that is no frontend
	DropBackendsFull  Drop = "backends-full"      // every backend is at maxConnections
	DropNoDescriptors Drop = "no-descriptors"     // EMFILE, ENFILE
	DropNoPorts       Drop = "no-ports"           // every source port towards the backend is in use
	DropNoMemory      Drop = "no-memory"          // ENOMEM, ENOBUFS
	DropProxyHeader   Drop = "bad-proxy-header"   // acceptProxy: no header in time, or a wrong one
	DropTooBig        Drop = "too-big"            // UDP: larger than a datagram can be, with its PROXY header; in the kernel: than the way out takes
	DropQueueFull     Drop = "queue-full"         // UDP: a socket's send queue had no room
	DropUnreachable   Drop = "unreachable"        // UDP, and in the kernel: the network refuses to carry it
	DropExpired       Drop = "expired"            // in the kernel: at the end of its time to live
	DropHeld          Drop = "held"               // in the kernel: it came while its flow was handed over, and is sent again
	DropOddPacket     Drop = "odd-packet"         // in the kernel: TCP in fragments, or with IP options
	DropOwnStack      Drop = "own-stack"          // in the kernel: this host's own stack spoke on a flow that is not its any more
	DropKernelFailed  Drop = "kernel-failed"      // in the kernel: a step was refused
	DropShutdown      Drop = "shutdown"           // accepted while stopping
	DropEvents        Drop = "trace-events"       // a slow reader of events
)

// Drops lists every Drop.
var Drops = []Drop{
	DropDenied, DropLimit, DropLimitClient, DropLimitRate, DropNoBackend, DropNoFrontend,
	DropNoUsable, DropClosedPort, DropBackendsFull,
	DropNoDescriptors, DropNoPorts, DropNoMemory, DropProxyHeader, DropTooBig, DropQueueFull,
	DropUnreachable, DropExpired, DropHeld, DropOddPacket, DropOwnStack, DropKernelFailed, DropShutdown, DropEvents,
}

// DialFailure is why one attempt to reach a backend failed.
type DialFailure string

// Why dialling fails. The first four count against the backend, the others are
// this host's own trouble and never do.
const (
	DialRefused     DialFailure = "refused"
	DialTimeout     DialFailure = "timeout"
	DialUnreachable DialFailure = "unreachable"
	DialReset       DialFailure = "reset"
	DialNoPorts     DialFailure = "no-ports"     // EADDRNOTAVAIL, EADDRINUSE
	DialNoResources DialFailure = "no-resources" // EMFILE, ENFILE, ENOBUFS, ENOMEM
	DialLocal       DialFailure = "local"        // any other error of this host (EPERM, EINVAL, …)
)

// DialFailures lists every DialFailure.
var DialFailures = []DialFailure{
	DialRefused, DialTimeout, DialUnreachable, DialReset, DialNoPorts, DialNoResources, DialLocal,
}

// Local reports whether the failure is this host's own, not the backend's.
func (d DialFailure) Local() bool {
	return d == DialNoPorts || d == DialNoResources || d == DialLocal
}

// ProbeResult is how one health probe ended.
type ProbeResult string

// How probes end. The first counts for the backend, the last, which is this
// host's own trouble, neither for nor against it, all others against it.
const (
	ProbePassed      ProbeResult = "passed"
	ProbeRefused     ProbeResult = "refused"     // a reset, or ICMP port unreachable
	ProbeTimeout     ProbeResult = "timeout"     // no connection, or no answer, in time
	ProbeUnreachable ProbeResult = "unreachable" // no route, no neighbour, or ICMP says so
	ProbeReset       ProbeResult = "reset"       // the connection broke before there was an answer
	ProbeBadStatus   ProbeResult = "bad-status"  // http: a status that is not in health.status
	ProbeBadAnswer   ProbeResult = "bad-answer"  // not HTTP, or without health.expect
	ProbeLocal       ProbeResult = "local"       // no descriptors, ports or permission here
)

// ProbeResults lists every ProbeResult.
var ProbeResults = []ProbeResult{
	ProbePassed, ProbeRefused, ProbeTimeout, ProbeUnreachable, ProbeReset, ProbeBadStatus, ProbeBadAnswer, ProbeLocal,
}
