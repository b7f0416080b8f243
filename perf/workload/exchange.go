package workload

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/baton-lb/baton/perf/load"
	"github.com/baton-lb/baton/perf/report"
	"github.com/baton-lb/baton/perf/topology"
)

// messageSize is that of requests and responses, in bytes.
const messageSize = 128

// figures of requests and responses.
func requestFigures(rate string) []report.Figure {
	return []report.Figure{
		{Key: "rate", Unit: rate},
		{Key: "p50", Unit: "µs", Lower: true},
		{Key: "p99", Unit: "µs", Lower: true},
	}
}

// Kept is connections that are kept, each with one request on its way at a time.
type Kept struct{ Conns int }

var _ Workload = Kept{}

// Spec implements Workload.
func (k Kept) Spec() Spec {
	return Spec{
		Name: fmt.Sprintf("kept-%d", k.Conns),
		About: fmt.Sprintf("%s, kept open; on each a request of %d bytes, its response of %d bytes, the next request.",
			plural(k.Conns, "connection"), messageSize, messageSize),
		Service: topology.Echo,
		Figures: requestFigures("requests/s"),
		Cost:    Cost{"µs/request", 1e6},
	}
}

// Run implements Workload.
func (k Kept) Run(ctx context.Context, c *Cell) (Result, error) {
	return exchange(ctx, c, load.ExchangeSpec{Conns: k.Conns, After: load.Again})
}

// Connect is a new connection for each request.
type Connect struct{ Conns int }

var _ Workload = Connect{}

// Spec implements Workload.
func (n Connect) Spec() Spec {
	return Spec{
		Name: fmt.Sprintf("connect-%d", n.Conns), Brief: true,
		About: fmt.Sprintf("%s at a time: connect, a request of %d bytes, its response of %d bytes, close by the client, the next one.",
			plural(n.Conns, "connection"), messageSize, messageSize),
		Service: topology.Echo,
		Figures: requestFigures("connections/s"),
		Cost:    Cost{"µs/connection", 1e6},
	}
}

// Run implements Workload.
func (n Connect) Run(ctx context.Context, c *Cell) (Result, error) {
	return exchange(ctx, c, load.ExchangeSpec{Conns: n.Conns, After: load.Reconnect})
}

// exchange measures requests and responses.
func exchange(ctx context.Context, c *Cell, spec load.ExchangeSpec) (r Result, err error) {
	servers, err := c.serve(topology.Echo, load.Echo)
	if err != nil {
		return r, err
	}
	defer servers.stop()
	spec.Size, spec.Targets = messageSize, c.targets(topology.Echo, spec.Conns)
	client, err := load.StartExchanges(c.Hosts.Client, spec)
	if err != nil {
		return r, err
	}
	defer client.Stop()
	answered := func() bool { return client.Done() >= int64(spec.Conns) }
	if err := await(ctx, "every connection is answered", answered, client.Err); err != nil {
		return r, err
	}
	w, err := c.measure(ctx, client, client.Done)
	if err != nil {
		return r, err
	}
	client.Stop()
	r = Result{
		Values: map[string]float64{"rate": w.rate(), "p50": microseconds(client, 0.5), "p99": microseconds(client, 0.99)},
		Work:   float64(w.count), Used: w.used,
		Flows: client.Done(), ToClient: client.Received(),
	}
	if spec.After == load.Again {
		r.Flows = client.Flows()
	}
	return r, servers.finish(ctx, &r)
}

// targets is where n connections or sockets go.
func (c *Cell) targets(s topology.Service, n int) []netip.AddrPort {
	targets := make([]netip.AddrPort, n)
	for i := range targets {
		targets[i] = c.Target(s, i)
	}
	return targets
}
