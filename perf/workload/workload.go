package workload

import (
	"context"
	"net/netip"
	"time"

	"github.com/baton-lb/baton/perf/report"
	"github.com/baton-lb/baton/perf/topology"
)

// Workload is a kind of traffic.
type Workload interface {
	Spec() Spec
	// Run measures once. It leaves nothing running.
	Run(ctx context.Context, c *Cell) (Result, error)
}

// Spec says what a workload is and needs.
type Spec struct {
	Name    string
	About   string // a sentence
	Service topology.Service
	Figures []report.Figure // the first is what it is for
	Cost    Cost

	Brief        bool // one request a flow
	NeedsProcess bool // measures a process; a mode without one has no such figure
	NeedsFresh   bool // measures a process that nothing has used before
}

// Cost says what CPU time is divided by.
type Cost struct {
	Unit  string  // "µs/request"
	Scale float64 // what makes of seconds for each unit of work that unit
}

// Cell is where and how long to measure.
type Cell struct {
	Hosts     *topology.Hosts
	Target    func(s topology.Service, i int) netip.AddrPort // where connection i goes
	Processes []int                                          // of the balancer; the kernel has none
	Duration  time.Duration

	// Measuring is called when measuring begins; nil = nobody wants to know.
	Measuring func()
}

// Result is what came out.
type Result struct {
	Values map[string]float64 // by the keys of the figures
	Work   float64            // what the CPU time was used for, in units of the cost
	Used   Used

	// What was moved, from the first to the last byte.
	Flows     int64
	ToBackend int64                // bytes of payload that backends received
	ToClient  int64                // bytes of payload that the client received
	Seen      map[netip.Addr]int64 // whom backends saw, and how often
}

// Used is CPU time.
type Used struct {
	Processes time.Duration // the balancer's
	Load      time.Duration // clients and servers, and what the kernel did in their name
	Machine   time.Duration // all of it, sampled
}

// Sizes says how much of what is counted, not timed.
type Sizes struct {
	Datagrams int // of a one-way burst; 0 = 100,000
	Idle      int // connections; 0 = 9,000
}

// All is every workload, in the order of reports.
func All(s Sizes) []Workload {
	if s.Datagrams == 0 {
		s.Datagrams = 100_000
	}
	if s.Idle == 0 {
		s.Idle = 9_000
	}
	return []Workload{
		Bulk{Conns: 1}, Bulk{Conns: 4}, Bulk{Conns: 1, Down: true}, Bulk{Conns: 4, Down: true},
		Kept{Conns: 1}, Kept{Conns: 32}, Connect{Conns: 16},
		Ask{Sockets: 16}, Oneway{Datagrams: s.Datagrams, Rate: 50_000}, Oneway{Datagrams: s.Datagrams},
		Idle{Conns: s.Idle},
	}
}
