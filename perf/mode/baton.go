package mode

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/baton-lb/baton/internal/admin/client"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/perf/topology"
)

// BatonSpec is a binary of Baton and how it is to carry traffic. More than one
// compares versions.
type BatonSpec struct {
	Name string
	Path string // of the binary

	// Offload hands every flow over to BPF, at once. Steer has all begin there. Else all stay in userspace.
	Offload bool
	Steer   bool
}

// Baton is Baton: all in userspace, or all in the kernel in one way or the other.
type Baton struct{ spec BatonSpec }

var (
	_ Mode    = Baton{}
	_ Lasting = Baton{}
)

// NewBaton makes the mode.
func NewBaton(spec BatonSpec) Baton { return Baton{spec} }

// Name implements Mode.
func (m Baton) Name() string { return m.spec.Name }

// Version implements Mode.
func (m Baton) Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, m.spec.Path, "version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", m.spec.Path, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line, nil
}

// Carries implements Mode.
func (Baton) Carries(p flow.Proto) bool { return p == flow.TCP || p == flow.UDP }

// Lasting implements Lasting: a handoff costs more than one request.
func (m Baton) Lasting() bool { return m.spec.Offload }

// Start implements Mode.
func (m Baton) Start(ctx context.Context, h *topology.Hosts) (_ Running, err error) {
	d, err := newDaemon(h)
	if err != nil {
		return nil, err
	}
	r := &baton{masked{d}, client.New(d.path("admin.sock")), m.spec.Offload || m.spec.Steer}
	defer func() {
		if err != nil {
			_ = r.Close()
		}
	}()
	if err := d.write("baton.yaml", m.config(h, d)); err != nil {
		return nil, err
	}
	return r, d.start(ctx, r.ready, m.spec.Path, "run", "--config", d.path("baton.yaml"),
		"--state-dir", d.dir, "--log-level", "warn", "--flows-on-exit", "reset")
}

func (m Baton) config(h *topology.Hosts, d *daemon) string {
	var b strings.Builder
	fmt.Fprintf(&b, "admin: {socket: %s, http: \"\"}\n", d.path("admin.sock"))
	offload := "never"
	if m.spec.Offload {
		offload = "always"
	}
	mode := flow.ModeProxy
	if m.spec.Steer {
		mode = flow.ModeSteer
	}
	fmt.Fprintf(&b, "defaults: {mode: %s, offload: {mode: %s}}\nservices:\n", mode, offload)
	for _, s := range topology.Services {
		var backends []string
		for i := range h.BackendAt {
			backends = append(backends, strconv.Quote(h.BackendAddr(i, s).String()))
		}
		fmt.Fprintf(&b, "  - name: %s\n    frontends: [\"%s://%s\"]\n    backends: [%s]\n",
			s.Name, s.Proto, h.VIPAddr(s), strings.Join(backends, ", "))
	}
	return b.String()
}

type baton struct {
	masked
	api    *client.Client
	kernel bool // its flows are to be there
}

var _ Profiler = (*baton)(nil)

func (r *baton) ready(ctx context.Context) error {
	answer, err := r.api.Get(ctx, "/readyz", nil)
	if err != nil {
		return err
	}
	return answer.Close()
}

// Processes implements Running.
func (r *baton) Processes() []int { return []int{r.cmd.Process.Pid} }

// Count implements Running: what was carried on the path that the mode is for.
func (r *baton) Count(ctx context.Context) (Counts, error) {
	answer, err := r.api.Get(ctx, "/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("ask Baton for its counters: %w", err)
	}
	defer answer.Close()
	return parseBaton(answer, r.kernel)
}

// leadIn is the part of the bytes, one in so many, that may go through userspace in
// a mode that offloads: what came before the handoff, and was queued.
const leadIn = 10

// parseBaton sums the metrics of the path that the mode is for. In the
// kernel that is BPF, and a little more.
func parseBaton(r io.Reader, inKernel bool) (Counts, error) {
	userspace, err := make(Counts), error(nil)
	kernel := make(Counts)
	lines := bufio.NewScanner(r)
	for lines.Scan() && err == nil {
		switch {
		case strings.Contains(lines.Text(), pathLabel(flow.PathUserspace)):
			err = userspace.add(lines.Text())
		case strings.Contains(lines.Text(), pathLabel(flow.PathBPF)):
			err = kernel.add(lines.Text())
		}
	}
	if err = cmp.Or(err, lines.Err()); err != nil {
		return nil, fmt.Errorf("read Baton's counters: %w", err)
	}
	sums := Counts{Flows: userspace[Flows], ToBackend: userspace[ToBackend], ToClient: userspace[ToClient]}
	if inKernel {
		for k := range sums {
			sums[k] = kernel[k] + min(userspace[k], kernel[k]/leadIn)
		}
	}
	return sums, nil
}

func pathLabel(path flow.PathName) string { return fmt.Sprintf("path=%q", path) }

// add adds what one line of metrics says.
func (c Counts) add(line string) error {
	name, rest, _ := strings.Cut(line, "{")
	labels, value, ok := strings.Cut(rest, "} ")
	var k Counter
	switch {
	case !ok:
		return nil
	case name == "baton_flows_active" || name == "baton_flows_total":
		k = Flows
	case name == "baton_bytes_total" && strings.Contains(labels, `direction="to_backend"`):
		k = ToBackend
	case name == "baton_bytes_total":
		k = ToClient
	default:
		return nil
	}
	n, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	c[k] += uint64(n)
	return nil
}

// Profile implements Profiler.
func (r *baton) Profile(ctx context.Context, d time.Duration, w io.Writer) error {
	seconds := max(1, int(d.Round(time.Second)/time.Second))
	answer, err := r.api.Get(ctx, "/debug/pprof/profile", url.Values{"seconds": {strconv.Itoa(seconds)}})
	if err != nil {
		return fmt.Errorf("take a profile: %w", err)
	}
	defer answer.Close()
	if _, err := io.Copy(w, answer); err != nil {
		return fmt.Errorf("take a profile: %w", err)
	}
	return nil
}

// Close implements Running.
func (r *baton) Close() error {
	r.api.Close()
	return r.close()
}
