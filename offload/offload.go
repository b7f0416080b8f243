package offload

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/handoff"
)

// Options configures an Offloader.
type Options struct {
	Kernel   Kernel
	Registry *flow.Registry
	Log      *slog.Logger // nil = none
	Ports    PortParams
	StateDir string // where reserved ports are remembered; "" = nowhere

	// Observe is told how long a flow stood still that has been handed off, Result
	// how each attempt ended. Both are called from one goroutine and must not block.
	Observe func(time.Duration)
	Result  func(flow.PathName, flow.HandoffResult)

	// Adopt is asked by Offloader.Adopt about each flow of an earlier process; false
	// ends it for the given reason. nil keeps all.
	Adopt func(Adopted) (keep bool, why flow.Reason)
}

// Adopted is a flow that an earlier process has handed off.
type Adopted struct {
	Proto                     flow.Proto
	Service                   string
	Client, Frontend, Backend netip.AddrPort
}

// Offloader hands flows over to the kernel.
type Offloader struct{}

var _ handoff.Offloader = (*Offloader)(nil)

// New makes an Offloader in the calling thread's network namespace and finds the
// flows that an earlier process has left in the kernel.
func New(o Options) (*Offloader, error) { return &Offloader{}, nil }

// Run hands flows over until ctx is done.
func (o *Offloader) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Adopt asks Options.Adopt about the flows of an earlier process.
func (o *Offloader) Adopt() {}

// Prepare implements handoff.Offloader.
func (o *Offloader) Prepare(handoff.Request) (handoff.Lease, flow.NotOffloaded) {
	return nil, flow.NotOffloadedUnavailable
}

// Carry implements handoff.Offloader.
func (o *Offloader) Carry(handoff.Session) (handoff.Carrier, flow.NotOffloaded) {
	return nil, flow.NotOffloadedUnavailable
}

// Handoff hands one flow over now.
func (o *Offloader) Handoff(flow.ID) (flow.HandoffResult, flow.NotOffloaded, error) {
	return flow.HandoffRefused, flow.NotOffloadedUnavailable, nil
}

// Kept is the UDP sessions of an earlier process that the kernel carries.
func (o *Offloader) Kept() []handoff.Kept { return nil }

// Flows is how many flows the kernel carries.
func (o *Offloader) Flows() int { return 0 }

// EndAll ends every flow in the kernel that match wants (nil = all).
func (o *Offloader) EndAll(why flow.Reason, match func(*flow.View) bool) int { return 0 }

// Close lets go: flows live on in the kernel.
func (o *Offloader) Close() error { return nil }
