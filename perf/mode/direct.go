package mode

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/perf/topology"
)

// Direct is no balancing at all: the client picks the backend and the balancer
// routes. No mode that goes over the balancer can be much better.
type Direct struct{}

var _ Mode = Direct{}

// Name implements Mode.
func (Direct) Name() string { return "direct" }

// Version implements Mode.
func (Direct) Version(context.Context) (string, error) { return "the kernel's IP forwarding", nil }

// Carries implements Mode.
func (Direct) Carries(flow.Proto) bool { return true }

// Start implements Mode.
func (Direct) Start(_ context.Context, h *topology.Hosts) (Running, error) {
	return &direct{routed{h}}, nil
}

type direct struct{ routed }

func (d *direct) Target(s topology.Service, i int) netip.AddrPort { return d.hosts.BackendAddr(i, s) }

func (d *direct) Count(context.Context) (Counts, error) { return d.countLink() }

func (d *direct) Close() error { return nil }

// routed is what all modes have in common that the kernel carries alone and
// without hiding the client.
type routed struct{ hosts *topology.Hosts }

// Shows implements Running.
func (r routed) Shows() []netip.Addr { return []netip.Addr{r.hosts.ClientAt} }

// Processes implements Running.
func (r routed) Processes() []int { return nil }

// countLink reads the counters of the balancer's device towards the client: bytes
// on the wire, which are more than those of the payload.
func (r routed) countLink() (Counts, error) {
	link, err := r.hosts.Balancer.Netlink().LinkByName(r.hosts.ClientDev)
	if err != nil {
		return nil, fmt.Errorf("read counters of %s: %w", r.hosts.ClientDev, err)
	}
	st := link.Attrs().Statistics
	if st == nil {
		return nil, fmt.Errorf("%s has no counters", r.hosts.ClientDev)
	}
	return Counts{ToBackend: st.RxBytes, ToClient: st.TxBytes}, nil
}
