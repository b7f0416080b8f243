package store

import (
	"context"
	"fmt"

	"github.com/baton-lb/baton/lb"
)

// Phase is when a programmer is called in a round.
//
// The order is what makes a round correct: Backends first, so that whatever a
// frontend is about to use is there when its first client comes; then
// Frontends, after which no new flow can begin on anything that is gone; only
// then Cleanup, which removes what nothing can reach any more. In any other
// order there would be a moment with a frontend that leads nowhere, or one in
// which a new flow makes an entry just behind the cleaner's back. So who adds
// something in Backends takes it away in Cleanup, as a second Programmer.
type Phase int

// The phases, in the order of a round.
const (
	Backends Phase = iota
	Frontends
	Cleanup
	phaseCount int = iota
)

func (p Phase) String() string {
	switch p {
	case Backends:
		return "backends"
	case Frontends:
		return "frontends"
	case Cleanup:
		return "cleanup"
	}
	return fmt.Sprintf("phase-%d", int(p))
}

// Programmer realises snapshots: it makes listeners, routes or kernel tables
// look like Change.To for the services that the change names.
type Programmer interface {
	// Program is idempotent, and called by one goroutine at a time. A
	// programmer that holds something of its own compares that with To; one
	// that holds nothing may work from the difference between From and To. It
	// returns what could not be done; that is tried again later, by itself, and
	// keeps nothing else waiting. It returns soon when ctx is done.
	Program(ctx context.Context, c Change) []Failure
}

// Change is the work of one round for one programmer.
type Change struct {
	// From has each service as this programmer last programmed it without a
	// failure: what failed or was held back stays at its older state here. The
	// frontends of From.Frontend and From.Frontends may then overlap; go by
	// Service.FrontendSet.
	From, To *Snapshot
	// Services names what differs between From and To, or is to be tried
	// again, sorted. A service that is not in To was removed; it is in neither
	// when it came and went between two rounds, or never worked.
	Services []string
	// Synced says that every source has delivered all it has: what is found in
	// the kernel and is not in To was left by an earlier process and may go.
	// When it turns true there is a round for it, even one with no Services.
	Synced bool
}

// Failure is one object that could not be programmed.
type Failure struct {
	Service  string
	Frontend lb.FrontendKey // zero = the whole service; then later phases wait with it
	Err      error
}

func (f Failure) whole() bool { return f.Frontend == lb.FrontendKey{} }

func (f Failure) Error() string {
	if f.whole() {
		return fmt.Sprintf("service %q: %v", f.Service, f.Err)
	}
	return fmt.Sprintf("service %q: %s: %v", f.Service, f.Frontend, f.Err)
}

func (f Failure) Unwrap() error { return f.Err }
