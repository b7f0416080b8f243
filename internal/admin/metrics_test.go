package admin

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// affinities is an AffinityTable of a test.
type affinities map[string]int

func (a affinities) Entries(service string) int { return a[service] }

func TestMetrics(t *testing.T) {
	m := NewMetrics()
	in := newInstance(t, func(o *Options) {
		o.Metrics = m
		o.Affinity = affinities{"web": 7, "api": 9}
	})
	in.unhealthy("10.202.2.2:8080", "refused")
	in.open("10.201.1.2:40000", time.Now())
	in.open("10.201.1.3:40000", time.Now()).Finish(flow.ByClient, flow.ReasonClosed)
	dialing := in.registry.Open(flow.Spec{Proto: flow.TCP, Service: "web", Client: netip.MustParseAddrPort("10.201.1.4:1")})
	dialing.Assign(flow.Assignment{Backend: netip.MustParseAddrPort("10.202.1.2:8080"), Picked: flow.ByAlgorithm})
	dialing.DialFailed(flow.DialRefused)
	in.registry.Drop(flow.DropLimit)
	m.Dial.Observe(3 * time.Millisecond)
	m.Programming.Observe(time.Second)
	m.Handoff.Observe(20 * time.Microsecond)
	m.CountHandoff(flow.PathBPF, flow.HandoffDone)

	_, body := in.getTCP("/metrics")
	for _, want := range []string{
		`baton_flows_active{path="userspace",protocol="tcp",service="web"} 2`, // one has no path yet
		`baton_flows_active{path="userspace",protocol="tcp",service="api"} 0`,
		`baton_flows_total{ended_by="client",path="userspace",protocol="tcp",reason="closed",service="web"} 1`,
		`baton_bytes_total{direction="to_backend",path="userspace",service="web"} 240`,
		`baton_bytes_total{direction="to_client",path="userspace",service="web"} 6800`,
		`baton_backend_up{backend="10.202.1.2:8080",service="web"} 1`,
		`baton_backend_up{backend="10.202.2.2:8080",service="web"} 0`,
		`baton_backend_up{backend="[fd02::2]:8080",service="web"} 1`,
		`baton_backend_up{backend="10.202.3.2:443",service="api"} 0`,
		`baton_backends{service="web"} 3`,
		`baton_backends_up{service="web"} 2`,
		`baton_backends_up{service="api"} 0`,
		`baton_dial_failures_total{backend="10.202.1.2:8080",reason="refused",service="web"} 1`,
		`baton_affinity_entries{service="web"} 7`,
		`baton_drops_total{reason="limit"} 1`,
		`baton_drops_total{reason="denied"} 0`,
		`baton_dial_seconds_bucket{le="0.005"} 1`,
		`baton_dial_seconds_sum 0.003`,
		`baton_programming_seconds_count 1`,
		`baton_handoffs_total{path="bpf",result="done"} 1`,
		`baton_handoffs_total{path="bpf",result="busy"} 0`,
		`baton_handoff_seconds_bucket{le="1e-05"} 0`,
		`baton_handoff_seconds_bucket{le="2.5e-05"} 1`,
		`baton_handoff_seconds_bucket{le="1"} 1`,
		`go_goroutines `,
		`process_open_fds `,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(body, `baton_affinity_entries{service="api"}`) {
		t.Error("entries of a service without affinity")
	}
	Histogram{}.Observe(time.Second) // of a program without metrics
}

// Where there are very many backends they are counted by service only.
func TestMetricsOfFewSeries(t *testing.T) {
	in := newInstance(t, func(o *Options) { o.FewSeries = true })
	_, body := in.getTCP("/metrics")
	if strings.Contains(body, "baton_backend_up{") || !strings.Contains(body, `baton_backends_up{service="web"} 3`) {
		t.Error(body)
	}
}

// TestMetricsOfABadName has a flow of a service whose name is no UTF-8: the rest
// is told all the same.
func TestMetricsOfABadName(t *testing.T) {
	in := newInstance(t)
	in.registry.Open(flow.Spec{Proto: flow.TCP, Service: "web\xff"})
	status, body := in.getTCP("/metrics")
	if status != 200 || !strings.Contains(body, "baton_drops_total") {
		t.Errorf("%d %s", status, body)
	}
}
