package workload

import (
	"context"
	"fmt"

	"github.com/baton-lb/baton/perf/load"
	"github.com/baton-lb/baton/perf/report"
	"github.com/baton-lb/baton/perf/topology"
)

// Ask is UDP sockets, each with one datagram on its way at a time.
type Ask struct{ Sockets int }

var _ Workload = Ask{}

// Spec implements Workload.
func (a Ask) Spec() Spec {
	return Spec{
		Name: fmt.Sprintf("udp-%d", a.Sockets),
		About: fmt.Sprintf("%s; from each a datagram of %d bytes, the same one back, the next.",
			plural(a.Sockets, "UDP socket"), messageSize),
		Service: topology.UDPEcho,
		Figures: append(requestFigures("requests/s"), report.Figure{Key: "lost", Unit: "datagrams", Lower: true}),
		Cost:    Cost{"µs/request", 1e6},
	}
}

// Run implements Workload.
func (a Ask) Run(ctx context.Context, c *Cell) (r Result, err error) {
	servers, err := c.serve(topology.UDPEcho, load.Echo)
	if err != nil {
		return r, err
	}
	defer servers.stop()
	client, err := load.StartAsking(c.Hosts.Client, load.AskSpec{
		Targets: c.targets(topology.UDPEcho, a.Sockets), Sockets: a.Sockets, Size: messageSize})
	if err != nil {
		return r, err
	}
	defer client.Stop()
	answered := func() bool { return client.Done() >= int64(a.Sockets) }
	if err := await(ctx, "datagrams come back", answered, client.Err); err != nil {
		return r, err
	}
	w, err := c.measure(ctx, client, client.Done)
	if err != nil {
		return r, err
	}
	client.Stop()
	r = Result{
		Values: map[string]float64{
			"rate": w.rate(), "p50": microseconds(client, 0.5), "p99": microseconds(client, 0.99), "lost": float64(client.Lost()),
		},
		Work: float64(w.count), Used: w.used,
		Flows: sessions(a.Sockets), ToClient: client.Received(),
	}
	return r, servers.finish(ctx, &r)
}

// sessions is how many of n sockets can be sure to be new to a balancer. A socket
// may have the port of an earlier one whose session is still there.
func sessions(n int) int64 { return int64(n+1) / 2 }
