package admin

import (
	"net/netip"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// The JSON of the API, as docs/contract.md has it. A flow is a flow.View, an
// event a flow.Event.

// Service is one line of `baton services`.
type Service struct {
	Name      string     `json:"name"`
	Frontends []Frontend `json:"frontends"`
	Mode      flow.Mode  `json:"mode"`
	// NotSteered is why it is proxied, where steering was asked for.
	NotSteered flow.NotSteered `json:"notSteered,omitempty"`
	Backends   int             `json:"backends"` // listed
	Ready      int             `json:"ready"`    // of them, those that take new flows
	Flows      int             `json:"flows"`    // open
}

// Frontend is one frontend of a Service, in URL form: "tcp://10.96.0.10:80".
type Frontend struct {
	Frontend string `json:"frontend"`
	Status   string `json:"status"`
	Reason   string `json:"reason,omitempty"`
	// NotSteered is why the relay has it, of a service that is steered.
	NotSteered flow.NotSteered `json:"notSteered,omitempty"`
}

// Backend is one line of `baton backends`.
type Backend struct {
	Service      string         `json:"service"`
	Backend      netip.AddrPort `json:"backend"`
	State        BackendState   `json:"state"`
	Health       Health         `json:"health"`
	HealthReason string         `json:"healthReason,omitempty"`
	Weight       uint16         `json:"weight"`
	Flows        int64          `json:"flows"` // open
	Failures     uint64         `json:"failures"`

	Drained        bool   `json:"drained,omitempty"` // by `baton drain`
	Priority       uint16 `json:"priority,omitempty"`
	MaxConnections int    `json:"maxConnections,omitempty"`
	Zone           string `json:"zone,omitempty"`
	Node           string `json:"node,omitempty"`
}

// BackendState is what a backend is meant to do.
type BackendState string

// The states of a backend.
const (
	BackendReady       BackendState = "ready"
	BackendDrain       BackendState = "drain"       // no new flows: its file or `baton drain` says so
	BackendDown        BackendState = "down"        // as if it were not there
	BackendTerminating BackendState = "terminating" // on its way out, still serving
	BackendNotServing  BackendState = "not-serving" // it has stopped to serve
)

// BackendStates lists every BackendState.
var BackendStates = []BackendState{
	BackendReady, BackendDrain, BackendDown, BackendTerminating, BackendNotServing,
}

// Health is what probes and failed dials say of a backend.
type Health string

// The healths of a backend.
const (
	Healthy   Health = "healthy"
	Unhealthy Health = "unhealthy"
)

// Healths lists every Health.
var Healths = []Health{Healthy, Unhealthy}

// Instance is who answers.
type Instance struct {
	Holder
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	Revision  uint64    `json:"revision"` // of the desired state
	Services  int       `json:"services"`
	Flows     int       `json:"flows"`
	Ready     bool      `json:"ready"`
	NotReady  string    `json:"notReady,omitempty"` // why not
}

// TargetRequest asks to drain or undrain.
type TargetRequest struct {
	Target string `json:"target"` // SERVICE, SERVICE/IP:PORT or IP:PORT
}

// TargetResult is what a drain or undrain led to.
type TargetResult struct {
	Target   string    `json:"target"`
	Backends []Backend `json:"backends"` // that the target names, as they are now
}

// ResetRequest asks to reset a flow.
type ResetRequest struct {
	Flow string `json:"flow"` // its id, or the start of one
}

// ResetResult is what became of a reset.
type ResetResult struct {
	Flow  flow.View `json:"flow"`
	Ended bool      `json:"ended"` // false: asked for, not seen yet
}

// HandoffRequest asks to hand a flow over to the kernel.
type HandoffRequest struct {
	Flow string `json:"flow"` // its id, or the start of one
}

// HandoffResult is what became of that.
type HandoffResult struct {
	Flow         flow.View          `json:"flow"`
	Result       flow.HandoffResult `json:"result"`
	Before       bool               `json:"before,omitempty"` // done: it had been handed off already
	NotOffloaded flow.NotOffloaded  `json:"notOffloaded,omitempty"`
	Detail       string             `json:"detail,omitempty"` // failed: what the kernel said
}

// Missed is a line among the events of a trace: so many did not fit since the
// last such line, because the reader was too slow.
type Missed struct {
	Missed uint64    `json:"missed"`
	Time   time.Time `json:"time"`
}

// errorAnswer is the body of every answer that is not 2xx.
type errorAnswer struct {
	Error string `json:"error"`
}
