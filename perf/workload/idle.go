package workload

import (
	"context"
	"fmt"

	"github.com/baton-lb/baton/perf/load"
	"github.com/baton-lb/baton/perf/proc"
	"github.com/baton-lb/baton/perf/report"
	"github.com/baton-lb/baton/perf/topology"
)

// Idle is connections that have had one request and are kept open.
type Idle struct{ Conns int }

var _ Workload = Idle{}

// Spec implements Workload.
func (i Idle) Spec() Spec {
	return Spec{
		Name: "idle-memory",
		About: fmt.Sprintf("%d connections that have had one request and are kept open: "+
			"how much the memory of the balancer's processes has grown, for each. What the kernel holds for their sockets is not in it.", i.Conns),
		Service:      topology.Echo,
		Figures:      []report.Figure{{Key: "memory", Unit: "bytes/connection", Lower: true}},
		Cost:         Cost{"µs/connection", 1e6},
		Brief:        true,
		NeedsProcess: true,
		NeedsFresh:   true,
	}
}

// Run implements Workload. The CPU time is that of opening the connections.
func (i Idle) Run(ctx context.Context, c *Cell) (r Result, err error) {
	servers, err := c.serve(topology.Echo, load.Echo)
	if err != nil {
		return r, err
	}
	defer servers.stop()
	before, err := proc.Memory(c.Processes...)
	if err != nil {
		return r, err
	}
	m, err := c.startMeter()
	if err != nil {
		return r, err
	}
	if c.Measuring != nil {
		c.Measuring()
	}
	client, err := load.StartExchanges(c.Hosts.Client, load.ExchangeSpec{
		Targets: c.targets(topology.Echo, i.Conns), Conns: i.Conns, Size: messageSize, After: load.Hold, Opening: 64})
	if err != nil {
		return r, err
	}
	defer client.Stop()
	if err := await(ctx, "all are open", func() bool { return client.Open() == int64(i.Conns) }, client.Err); err != nil {
		return r, fmt.Errorf("%d of %d connections: %w", client.Open(), i.Conns, err)
	}
	if err := pause(ctx, c.Duration); err != nil {
		return r, err
	}
	used, err := m.used()
	if err != nil {
		return r, err
	}
	after, err := proc.Memory(c.Processes...)
	if err != nil {
		return r, err
	}
	if open := servers.open(); open != int64(i.Conns) {
		return r, fmt.Errorf("of %d connections the backends have %d", i.Conns, open)
	}
	client.Stop()
	r = Result{
		Values: map[string]float64{"memory": float64(after-before) / float64(i.Conns)},
		Work:   float64(i.Conns), Used: used,
		Flows: client.Flows(), ToClient: client.Received(),
	}
	if err := servers.finish(ctx, &r); err != nil {
		return r, err
	}
	return r, client.Err()
}
