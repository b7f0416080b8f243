package workload

import (
	"context"
	"fmt"

	"github.com/baton-lb/baton/perf/load"
	"github.com/baton-lb/baton/perf/report"
	"github.com/baton-lb/baton/perf/topology"
)

// Bulk is connections on which one side sends as fast as it goes.
type Bulk struct {
	Conns int
	Down  bool // the backends send
}

var _ Workload = Bulk{}

// Spec implements Workload.
func (b Bulk) Spec() Spec {
	s := Spec{
		Name:    fmt.Sprintf("bulk-up-%d", b.Conns),
		About:   fmt.Sprintf("%s on which the client sends as fast as it goes.", plural(b.Conns, "connection")),
		Service: topology.Sink,
		Figures: []report.Figure{{Key: "rate", Unit: "Gbit/s"}},
		Cost:    Cost{"s/GB", 1},
	}
	if b.Down {
		s.Name = fmt.Sprintf("bulk-down-%d", b.Conns)
		s.About = fmt.Sprintf("%s on which the backend sends as fast as it goes.", plural(b.Conns, "connection"))
		s.Service = topology.Source
	}
	return s
}

func plural(n int, noun string) string {
	if n == 1 {
		return "One " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Run implements Workload. What the receivers have counts.
func (b Bulk) Run(ctx context.Context, c *Cell) (r Result, err error) {
	service, kind := topology.Sink, load.Sink
	if b.Down {
		service, kind = topology.Source, load.Source
	}
	servers, err := c.serve(service, kind)
	if err != nil {
		return r, err
	}
	defer servers.stop()
	client, err := load.StartBulk(c.Hosts.Client, load.BulkSpec{Targets: c.targets(service, b.Conns), Conns: b.Conns, Down: b.Down})
	if err != nil {
		return r, err
	}
	defer client.Stop()
	received := func() int64 { return client.Received() + servers.received() }
	flowing := func() bool { return client.Flows() == int64(b.Conns) && received() > 0 }
	if err := await(ctx, "bulk data flows", flowing, client.Err); err != nil {
		return r, err
	}
	w, err := c.measure(ctx, client, received)
	if err != nil {
		return r, err
	}
	client.Stop()
	r = Result{
		Values: map[string]float64{"rate": w.rate() * 8 / 1e9},
		Work:   float64(w.count) / 1e9, Used: w.used,
		Flows: client.Flows(), ToClient: client.Received(),
	}
	return r, servers.finish(ctx, &r)
}
