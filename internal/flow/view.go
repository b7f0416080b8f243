package flow

import (
	"net/netip"
	"time"
)

// View is a copy of a Record at one moment, and the JSON form of a flow
// (docs/contract.md). Times are RFC 3339 with nanoseconds; unset fields are
// omitted.
type View struct {
	ID       ID             `json:"id"`
	Mode     Mode           `json:"mode,omitempty"`
	Protocol Proto          `json:"protocol,omitempty"`
	Service  string         `json:"service,omitempty"`
	Frontend netip.AddrPort `json:"frontend,omitzero"`
	Client   netip.AddrPort `json:"client,omitzero"`
	Backend  netip.AddrPort `json:"backend,omitzero"`
	Path     PathName       `json:"path,omitempty"`
	State    State          `json:"state,omitempty"`
	Picked   Picked         `json:"picked,omitempty"`

	StartedAt   time.Time `json:"startedAt,omitzero"`
	HandedOffAt time.Time `json:"handedOffAt,omitzero"`
	LastSeenAt  time.Time `json:"lastSeenAt,omitzero"`
	EndedAt     time.Time `json:"endedAt,omitzero"`

	EndedBy      By           `json:"endedBy,omitempty"`
	Reason       Reason       `json:"reason,omitempty"`
	NotOffloaded NotOffloaded `json:"notOffloaded,omitempty"`

	ClientAddress  ClientAddress  `json:"clientAddress,omitempty"` // where the service asks to keep it
	NotTransparent NotTransparent `json:"notTransparent,omitempty"`

	BytesToBackend   uint64 `json:"bytesToBackend"`
	BytesToClient    uint64 `json:"bytesToClient"`
	PacketsToBackend uint64 `json:"packetsToBackend"`
	PacketsToClient  uint64 `json:"packetsToClient"`
}

// EventName is what happened to a flow.
type EventName string

// The events of a flow's life.
const (
	EventAccepted     EventName = "accepted"
	EventPicked       EventName = "picked"
	EventDialled      EventName = "dialled"
	EventDialFailed   EventName = "dial-failed"
	EventFirstByte    EventName = "first-byte"
	EventHandedOff    EventName = "handed-off"
	EventNotOffloaded EventName = "not-offloaded"
	EventHalfClosed   EventName = "half-closed"
	EventEnded        EventName = "ended"
)

// Event is one step in a flow's life: the time, the flow, what happened, and
// the fields of the flow that this step sets.
type Event struct {
	Time  time.Time `json:"time"`
	Flow  ID        `json:"flow"`
	Event EventName `json:"event"`

	Mode         Mode           `json:"mode,omitempty"`
	Protocol     Proto          `json:"protocol,omitempty"`
	Service      string         `json:"service,omitempty"`
	Frontend     netip.AddrPort `json:"frontend,omitzero"`
	Client       netip.AddrPort `json:"client,omitzero"`
	Backend      netip.AddrPort `json:"backend,omitzero"`
	Path         PathName       `json:"path,omitempty"`
	State        State          `json:"state,omitempty"`
	Picked       Picked         `json:"picked,omitempty"`
	StartedAt    time.Time      `json:"startedAt,omitzero"`
	HandedOffAt  time.Time      `json:"handedOffAt,omitzero"`
	LastSeenAt   time.Time      `json:"lastSeenAt,omitzero"`
	EndedAt      time.Time      `json:"endedAt,omitzero"`
	EndedBy      By             `json:"endedBy,omitempty"`
	Reason       Reason         `json:"reason,omitempty"`
	NotOffloaded NotOffloaded   `json:"notOffloaded,omitempty"`

	ClientAddress  ClientAddress  `json:"clientAddress,omitempty"` // dialled
	NotTransparent NotTransparent `json:"notTransparent,omitempty"`

	DialFailure DialFailure `json:"dialFailure,omitempty"` // dial-failed: why
	From        By          `json:"from,omitempty"`        // first-byte, half-closed: whose

	BytesToBackend   uint64 `json:"bytesToBackend,omitempty"`
	BytesToClient    uint64 `json:"bytesToClient,omitempty"`
	PacketsToBackend uint64 `json:"packetsToBackend,omitempty"`
	PacketsToClient  uint64 `json:"packetsToClient,omitempty"`

	// about is the flow as a whole, for filters; it is not written.
	about View
}

// About is the flow that the event belongs to, as it was then: what filters
// match on. The counters in it are unset until the flow has ended.
func (e *Event) About() *View { return &e.about }
