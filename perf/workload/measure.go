package workload

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/perf/load"
	"github.com/baton-lb/baton/perf/proc"
	"github.com/baton-lb/baton/perf/topology"
)

// patience is how long anything may take that is waited for.
const patience = 15 * time.Second

// servers are the backends' servers of one service.
type servers []*load.Server

// serve starts a server on every backend.
func (c *Cell) serve(s topology.Service, kind load.Kind) (_ servers, err error) {
	start := load.ServeTCP
	if s.Proto == flow.UDP {
		start = load.ServeUDP
	}
	var all servers
	for i, host := range c.Hosts.Backends {
		srv, err := start(host, c.Hosts.BackendAddr(i, s), kind)
		if err != nil {
			all.stop()
			return nil, fmt.Errorf("serve %s on %s: %w", s, host.Name(), err)
		}
		all = append(all, srv)
	}
	return all, nil
}

func (all servers) stop() {
	for _, s := range all {
		s.Stop()
	}
}

func (all servers) sum(count func(*load.Server) int64) int64 {
	n := int64(0)
	for _, s := range all {
		n += count(s)
	}
	return n
}

func (all servers) received() int64  { return all.sum((*load.Server).Received) }
func (all servers) open() int64      { return all.sum((*load.Server).Open) }
func (all servers) datagrams() int64 { return all.sum((*load.Server).Datagrams) }

func (all servers) err() error {
	var errs []error
	for _, s := range all {
		errs = append(errs, s.Err())
	}
	return errors.Join(errs...)
}

// finish waits until no connection is left, stops the servers and puts into the
// result what they saw.
func (all servers) finish(ctx context.Context, r *Result) error {
	if err := await(ctx, "every connection is closed", func() bool { return all.open() == 0 }, nil); err != nil {
		return err
	}
	all.stop()
	r.ToBackend = all.received()
	r.Seen = make(map[netip.Addr]int64)
	for _, s := range all {
		for peer, n := range s.Peers() {
			r.Seen[peer] += n
		}
	}
	if err := all.err(); err != nil {
		return fmt.Errorf("the backends' servers: %w", err)
	}
	return nil
}

// await polls until done, unless failed returns an error.
func await(ctx context.Context, what string, done func() bool, failed func() error) error {
	deadline := time.Now().Add(patience)
	for !done() {
		if failed != nil {
			if err := failed(); err != nil {
				return err
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %s", patience, what)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// meter measures CPU time from its making to used.
type meter struct {
	processes []int
	at        Used
}

func (c *Cell) startMeter() (m meter, err error) {
	m.processes = c.Processes
	m.at, err = m.read()
	return m, err
}

func (m meter) read() (u Used, err error) {
	if u.Processes, err = proc.CPU(m.processes...); err != nil {
		return u, err
	}
	if u.Load, err = proc.CPU(os.Getpid()); err != nil {
		return u, err
	}
	u.Machine, err = proc.Busy()
	return u, err
}

func (m meter) used() (Used, error) {
	now, err := m.read()
	return Used{
		Processes: now.Processes - m.at.Processes,
		Load:      now.Load - m.at.Load,
		Machine:   now.Machine - m.at.Machine,
	}, err
}

// window is what happened while it was measured.
type window struct {
	count int64
	took  time.Duration
	used  Used
}

// rate is events a second.
func (w window) rate() float64 { return float64(w.count) / w.took.Seconds() }

// measure lets the client run itself in, and then counts for the time of the cell.
func (c *Cell) measure(ctx context.Context, client *load.Client, count func() int64) (w window, err error) {
	if err := pause(ctx, c.Duration/5); err != nil {
		return w, err
	}
	m, err := c.startMeter()
	if err != nil {
		return w, err
	}
	if c.Measuring != nil {
		c.Measuring()
	}
	began, before := time.Now(), count()
	client.Record(true)
	if err := pause(ctx, c.Duration); err != nil {
		return w, err
	}
	// On a busy machine a short time may pass without any; then it is longer.
	if err := await(ctx, "something is carried", func() bool { return count() > before }, client.Err); err != nil {
		return w, err
	}
	client.Record(false)
	w.count, w.took = count()-before, time.Since(began)
	if w.used, err = m.used(); err != nil {
		return w, err
	}
	return w, client.Err()
}

// microseconds is a quantile of the client's latency.
func microseconds(c *load.Client, q float64) float64 {
	return float64(c.Latency().Quantile(q)) / float64(time.Microsecond)
}
