package mode

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/perf/topology"
)

// streamModule is where Debian puts it.
const streamModule = "/usr/lib/nginx/modules/ngx_stream_module.so"

// Nginx is nginx with its stream module: a worker with listening sockets of its
// own for each CPU.
type Nginx struct {
	o    Options
	once bool
}

var _ Mode = Nginx{}

// NewNginx makes the mode. With once a UDP session ends with the first response
// (proxy_responses 1), as nginx's documents advise for DNS; it carries only UDP.
func NewNginx(o Options, once bool) Nginx { return Nginx{o, once} }

// Name implements Mode.
func (m Nginx) Name() string {
	if m.once {
		return "nginx-once"
	}
	return "nginx"
}

// Version implements Mode.
func (Nginx) Version(ctx context.Context) (string, error) {
	if _, err := os.Stat(streamModule); err != nil {
		return "", fmt.Errorf("nginx: %w: install the packages nginx and libnginx-mod-stream", ErrUnavailable)
	}
	return versionOf(ctx, "nginx", "nginx", "-v")
}

// Carries implements Mode.
func (m Nginx) Carries(p flow.Proto) bool { return p == flow.UDP || p == flow.TCP && !m.once }

// Start implements Mode.
func (m Nginx) Start(ctx context.Context, h *topology.Hosts) (_ Running, err error) {
	program, err := find("nginx", "nginx")
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
	r := &nginx{masked{d}, statusClient(d.path("status.sock"))}
	defer func() {
		if err != nil {
			_ = r.Close()
		}
	}()
	if err := d.write("nginx.conf", m.config(h, d)); err != nil {
		return nil, err
	}
	ready := func(ctx context.Context) error { _, err := r.Count(ctx); return err }
	return r, d.start(ctx, ready, program, "-e", "stderr", "-p", d.dir, "-c", d.path("nginx.conf"))
}

func (m Nginx) config(h *topology.Hosts, d *daemon) string {
	var b strings.Builder
	fmt.Fprintf(&b, "load_module %s;\ndaemon off;\nuser root;\nworker_processes %d;\npid %s;\nerror_log stderr crit;\n",
		streamModule, m.o.cpus(), d.path("nginx.pid"))
	// A proxied connection is two, and the kernel may give all to one worker.
	fmt.Fprintf(&b, "worker_rlimit_nofile %d;\nevents { worker_connections %d; }\n",
		2*m.o.connections()+100, 2*m.o.connections())
	fmt.Fprintf(&b, "http { access_log off; server { listen unix:%s; location / { stub_status; } } }\n", d.path("status.sock"))
	b.WriteString("stream {\n")
	for _, s := range topology.Services {
		udp := ""
		if s.Proto == flow.UDP {
			udp = " udp"
		}
		fmt.Fprintf(&b, "\tupstream %s {", s.Name)
		for i := range h.BackendAt {
			fmt.Fprintf(&b, " server %s;", h.BackendAddr(i, s))
		}
		fmt.Fprintf(&b, " }\n\tserver { listen %s%s reuseport; proxy_pass %s; proxy_timeout 1h;", h.VIPAddr(s), udp, s.Name)
		if udp != "" && m.once {
			b.WriteString(" proxy_responses 1;")
		}
		b.WriteString(" }\n")
	}
	b.WriteString("}\n")
	return b.String()
}

type nginx struct {
	masked
	status *http.Client
}

// Processes implements Running: the workers.
func (r *nginx) Processes() []int { return r.pids()[1:] }

// Count implements Running. The page counts what any of nginx's parts accepts, UDP
// sessions included (ngx_stat_accepted), and so its own readers, who ask once.
func (r *nginx) Count(ctx context.Context) (Counts, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://nginx/", nil)
	if err != nil {
		return nil, fmt.Errorf("ask nginx for its counters: %w", err)
	}
	resp, err := r.status.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask nginx for its counters: %w", err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("ask nginx for its counters: %w", err)
	}
	return parseNginx(string(page))
}

// parseNginx reads the page of ngx_http_stub_status_module.
func parseNginx(page string) (Counts, error) {
	var active, accepts, handled, requests uint64
	_, err := fmt.Sscanf(page, "Active connections: %d \nserver accepts handled requests\n %d %d %d",
		&active, &accepts, &handled, &requests)
	if err != nil {
		return nil, fmt.Errorf("read nginx's counters in %q: %w", page, err)
	}
	return Counts{Flows: accepts - min(requests, accepts)}, nil
}

func statusClient(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
}
