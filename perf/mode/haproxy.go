package mode

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/perf/topology"
)

// HAProxy is HAProxy in mode tcp: one process with a thread and a listening socket
// for each CPU, and splice(2) where it finds it worth it.
type HAProxy struct{ o Options }

var _ Mode = HAProxy{}

// NewHAProxy makes the mode.
func NewHAProxy(o Options) HAProxy { return HAProxy{o} }

// Name implements Mode.
func (HAProxy) Name() string { return "haproxy" }

// Version implements Mode.
func (HAProxy) Version(ctx context.Context) (string, error) {
	return versionOf(ctx, "haproxy", "haproxy", "-v")
}

// Carries implements Mode. HAProxy balances no datagrams.
func (HAProxy) Carries(p flow.Proto) bool { return p == flow.TCP }

// Start implements Mode.
func (m HAProxy) Start(ctx context.Context, h *topology.Hosts) (_ Running, err error) {
	program, err := find("haproxy", "haproxy")
	if err != nil {
		return nil, err
	}
	if err := ownVIP(h); err != nil {
		return nil, err
	}
	d, err := newDaemon(h)
	if err != nil {
		return nil, err
	}
	r := &haproxy{masked{d}}
	defer func() {
		if err != nil {
			_ = r.Close()
		}
	}()
	if err := d.write("haproxy.cfg", m.config(h, r.socket())); err != nil {
		return nil, err
	}
	ready := func(ctx context.Context) error { _, err := r.Count(ctx); return err }
	return r, d.start(ctx, ready, program, "-db", "-q", "-f", d.path("haproxy.cfg"))
}

// config is for as many connections as asked for. Pipes for splice(2) come on top
// of their descriptors, so there are as many as a test of bulk data can use.
func (m HAProxy) config(h *topology.Hosts, socket string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "global\n\tnbthread %d\n\tmaxconn %d\n\tmaxpipes 64\n\tstats socket %s mode 600 level user\n",
		m.o.cpus(), m.o.connections(), socket)
	b.WriteString("defaults\n\tmode tcp\n\toption splice-auto\n")
	b.WriteString("\ttimeout connect 5s\n\ttimeout client 1h\n\ttimeout server 1h\n")
	for _, s := range topology.Of(flow.TCP) {
		fmt.Fprintf(&b, "frontend %s\n\tbind %s shards by-thread\n\tmaxconn %d\n\tdefault_backend %s\n",
			s.Name, h.VIPAddr(s), m.o.connections(), s.Name)
		fmt.Fprintf(&b, "backend %s\n\tbalance roundrobin\n", s.Name)
		for i := range h.BackendAt {
			fmt.Fprintf(&b, "\tserver backend%d %s\n", i+1, h.BackendAddr(i, s))
		}
	}
	return b.String()
}

func (o Options) cpus() int {
	if o.CPUs == 0 {
		return runtime.NumCPU()
	}
	return o.CPUs
}

// connections is what was asked for and a few more, for what has just ended.
func (o Options) connections() int {
	if o.Connections == 0 {
		return 1000
	}
	return o.Connections + o.Connections/50 + 100
}

type haproxy struct{ masked }

func (r *haproxy) socket() string { return r.path("stats.sock") }

// Processes implements Running.
func (r *haproxy) Processes() []int { return []int{r.cmd.Process.Pid} }

// Count implements Running.
func (r *haproxy) Count(ctx context.Context) (Counts, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", r.socket())
	if err != nil {
		return nil, fmt.Errorf("ask HAProxy for its counters: %w", err)
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}
	if _, err := io.WriteString(c, "show stat\n"); err != nil {
		return nil, fmt.Errorf("ask HAProxy for its counters: %w", err)
	}
	return parseHAProxy(c)
}

// parseHAProxy sums the rows of frontends in the CSV of HAProxy's management guide
// (section 9.1): stot, bin and bout.
func parseHAProxy(r io.Reader) (Counts, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = -1
	rows, err := in.ReadAll()
	if err != nil || len(rows) == 0 {
		return nil, fmt.Errorf("read HAProxy's counters: %d rows: %w", len(rows), err)
	}
	column := make(map[string]int)
	for i, name := range rows[0] {
		column[strings.TrimPrefix(name, "# ")] = i
	}
	counts := make(Counts)
	for name, k := range map[string]Counter{"stot": Flows, "bin": ToBackend, "bout": ToClient} {
		for _, row := range rows[1:] {
			if len(row) <= max(column[name], column["svname"]) || row[column["svname"]] != "FRONTEND" {
				continue
			}
			n, err := strconv.ParseUint(row[column[name]], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("read HAProxy's counter %s: %w", name, err)
			}
			counts[k] += n
		}
	}
	return counts, nil
}
