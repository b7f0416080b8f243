package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/baton-lb/baton/perf/load"
	"github.com/baton-lb/baton/perf/report"
	"github.com/baton-lb/baton/perf/topology"
)

// onewaySize is what a line of statsd is long, in bytes.
const onewaySize = 100

// Oneway is datagrams from one socket that nobody answers.
type Oneway struct {
	Datagrams int
	Rate      int // a second; 0 = as fast as the sender can
}

var _ Workload = Oneway{}

// Spec implements Workload. CPU time is that of the whole burst, scaled to 100,000
// datagrams.
func (o Oneway) Spec() Spec {
	name, pace := "udp-oneway", fmt.Sprintf("%d a second", o.Rate)
	if o.Rate == 0 {
		name, pace = "udp-burst", "as fast as the sender can"
	}
	return Spec{
		Name:    name,
		About:   fmt.Sprintf("%d datagrams of %d bytes from one socket, %s, that nobody answers.", o.Datagrams, onewaySize, pace),
		Service: topology.UDPSink,
		Figures: []report.Figure{
			{Key: "lost", Unit: "datagrams", Lower: true, Plain: true},
			{Key: "twice", Unit: "datagrams", Lower: true, Plain: true},
			{Key: "sent", Unit: "datagrams/s"},
		},
		Cost: Cost{"s/100,000", 1},
	}
}

// Run implements Workload.
func (o Oneway) Run(ctx context.Context, c *Cell) (r Result, err error) {
	servers, err := c.serve(topology.UDPSink, load.Sink)
	if err != nil {
		return r, err
	}
	defer servers.stop()
	m, err := c.startMeter()
	if err != nil {
		return r, err
	}
	if c.Measuring != nil {
		c.Measuring()
	}
	sent, took, err := load.SendBurst(c.Hosts.Client, load.BurstSpec{
		Target: c.Target(topology.UDPSink, 0), Count: o.Datagrams, Size: onewaySize, Rate: o.Rate})
	if err != nil {
		return r, err
	}
	if err := settle(ctx, servers, int64(sent)); err != nil {
		return r, err
	}
	used, err := m.used()
	if err != nil {
		return r, err
	}
	r = Result{Work: float64(sent) / 100_000, Used: used, Flows: sessions(1)}
	if err := servers.finish(ctx, &r); err != nil {
		return r, err
	}
	distinct := servers.sum((*load.Server).Distinct)
	r.Values = map[string]float64{
		"lost": float64(int64(sent) - distinct), "twice": float64(servers.datagrams() - distinct),
		"sent": float64(sent) / took.Seconds(),
	}
	return r, nil
}

// settle waits until all have arrived, or none has for a while.
func settle(ctx context.Context, all servers, sent int64) error {
	const still = 300 * time.Millisecond
	last, since := int64(-1), time.Now()
	for {
		n := all.datagrams()
		if n != last {
			last, since = n, time.Now()
		}
		if n >= sent || time.Since(since) > still {
			return nil
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}
