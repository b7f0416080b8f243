package flow

import (
	"net/netip"
	"time"
)

// Spec is what is known about a flow when it begins.
type Spec struct {
	Mode     Mode // "" = proxy
	Proto    Proto
	Service  string
	Frontend netip.AddrPort // the address that the client asked for
	Client   netip.AddrPort

	// Adopted flows only: what an earlier process knew.
	ID        ID        // 0 = a new one
	StartedAt time.Time // zero = now
	Counters  Counters  // carried before; with Path, by paths before that one

	// Adopted flows only that a path has carried all the while. The flow begins
	// in State, and nothing is said of its beginning: that was long ago.
	Backend     netip.AddrPort
	Picked      Picked
	Load        *Load // of the backend, whose limit it may exceed; nil = not counted. The caller pays back its Acquire
	PathName    PathName
	Path        Path
	State       State // "" = Offloaded with a Path that is not userspace, else Dialing
	HandedOffAt time.Time
}

func (s *Spec) state() State {
	switch {
	case s.State != "":
		return s.State
	case s.Path != nil && s.PathName != PathUserspace:
		return Offloaded
	}
	return Dialing
}
