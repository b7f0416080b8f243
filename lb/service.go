package lb

import (
	"net/netip"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// Service is a set of frontends and the backends that serve them, with every
// policy that applies. Start from Default.
type Service struct {
	Name      string // unique; what tables, metrics and traces show
	Frontends []Frontend
	Backends  []Backend

	Mode             flow.Mode
	Unsteered        bool // mode steer was asked for where it can be, and it cannot: see NotSteerable
	Balance          Algorithm
	Affinity         Affinity
	Health           HealthCheck
	ClientAddress    ClientAddress
	AcceptProxy      []netip.Prefix // from here a PROXY header is required and believed
	Allow            []netip.Prefix // clients; empty = all
	Deny             []netip.Prefix // clients; wins over Allow
	OnBackendRemoved RemovedPolicy
	DrainTimeout     time.Duration
	Timeouts         Timeouts
	Offload          Offload
	Limits           Limits
	Steer            Steer
	SCTP             SCTP

	// HealthCheckNodePort is where load balancers outside ask whether this node
	// has a backend; 0 = nowhere. Kubernetes sets it, a file has no key for it.
	// Services with one HealthCheckName, the ports of one object, share it.
	HealthCheckNodePort uint16
	HealthCheckName     string // "" = Name
}

// Affinity keeps a client at its backend. The zero value is none.
type Affinity struct {
	By      AffinityBy
	Timeout time.Duration // since the last new flow; 0 = DefaultAffinityTimeout
}

// DefaultAffinityTimeout is Kubernetes' default for session affinity.
const DefaultAffinityTimeout = 3 * time.Hour

// HealthCheck is an active probe, and what follows from it. The zero value is no
// probe.
type HealthCheck struct {
	Probe     Probe
	Interval  time.Duration
	Timeout   time.Duration
	Rise      int
	Fall      int
	Port      uint16        // 0 = the backend's
	Path      string        // http
	Host      string        // http; "" = the address
	Status    string        // http: see ParseStatusRanges
	Send      string        // tcp, udp
	Expect    string        // what the answer must contain; tcp: "" = no answer is awaited
	SlowStart time.Duration // see Service.SlowStart; 0 = by the algorithm, negative = none
}

// Timeouts of a service. 0 in any of them is an error, not "for ever".
type Timeouts struct {
	Connect    time.Duration // one attempt to reach one backend
	Idle       time.Duration // no byte either way
	HalfClosed time.Duration // no byte, one side closed
	UDPIdle    time.Duration
	KeepAlive  time.Duration // TCP: silence before a peer is asked whether it is still there
	PeerLost   time.Duration // TCP: how long data or that question may stay unacknowledged
}

// Offload says which flows go to the kernel, and how.
type Offload struct {
	Mode       OffloadMode
	Path       OffloadPath
	AfterBytes int64 // both directions together
	AfterAge   time.Duration
}

// Limits of a service; 0 = none. What is over a limit is reset at once and
// counted.
type Limits struct {
	Connections  int // open at once
	PerClient    int // open at once from one client address
	NewPerSecond int
	UDPSessions  int
}

// Steer is for mode steer.
type Steer struct {
	Choose     SteerChoose
	WhenAbsent SteerAbsent
}

// SCTP is for SCTP frontends.
type SCTP struct {
	Mode        SCTPMode
	Multihoming Multihoming
}

// Default is a service with every default of docs/contract.md.
func Default(name string) Service {
	return Service{
		Name:             name,
		Mode:             flow.ModeProxy,
		Balance:          RoundRobin,
		ClientAddress:    Masked,
		OnBackendRemoved: Keep,
		DrainTimeout:     30 * time.Second,
		Timeouts: Timeouts{
			Connect: 2 * time.Second, Idle: time.Hour, HalfClosed: time.Minute, UDPIdle: time.Minute,
			KeepAlive: time.Minute, PeerLost: 2 * time.Minute,
		},
		Offload: Offload{Mode: OffloadAuto, Path: OffloadPathAuto, AfterBytes: 64 << 10, AfterAge: time.Second},
		Steer:   Steer{Choose: ChooseAuto, WhenAbsent: LastKnown},
		SCTP:    SCTP{Mode: SCTPRelay, Multihoming: Strip},
	}
}

// DefaultHealth is a health check of the given kind with every default.
func DefaultHealth(p Probe) HealthCheck {
	return HealthCheck{
		Probe: p, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, Path: "/", Status: "200-399",
	}
}
