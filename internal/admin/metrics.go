package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/baton-lb/baton/internal/flow"
)

// maxScrapes is how many scrapes are answered at a time.
const maxScrapes = 4

// Metrics is what /metrics shows, in a registry of its own. Make it first: the
// data path and the store observe durations through it, everything else is read
// from the registry, the store and the affinity tables when somebody scrapes.
type Metrics struct {
	Dial        Histogram // baton_dial_seconds: until a backend has answered
	Programming Histogram // baton_programming_seconds: one round of the reconcile loop
	Handoff     Histogram // baton_handoff_seconds: how long the packets of a flow were held

	// After ForKubernetes.
	SyncRules          Histogram // kubeproxy_sync_proxy_rules_duration_seconds: one round of the reconcile loop
	NetworkProgramming Histogram // kubeproxy_network_programming_duration_seconds: from a change in the cluster until it is in force

	handoffs *prometheus.CounterVec
	registry *prometheus.Registry
}

// Histogram takes durations. The zero value takes them and forgets them.
type Histogram struct{ h prometheus.Histogram }

// Observe adds one duration.
func (h Histogram) Observe(d time.Duration) {
	if h.h != nil {
		h.h.Observe(d.Seconds())
	}
}

// NewMetrics makes the metrics of one instance.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry:    prometheus.NewRegistry(),
		Dial:        newHistogram("baton_dial_seconds", helpDialSeconds, buckets),
		Programming: newHistogram("baton_programming_seconds", helpProgrammingSeconds, buckets),
		Handoff:     newHistogram("baton_handoff_seconds", helpHandoffSeconds, handoffBuckets),
		handoffs: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "baton_handoffs_total", Help: helpHandoffsTotal}, []string{"path", "result"}),
	}
	m.registry.MustRegister(m.Dial.h, m.Programming.h, m.Handoff.h, m.handoffs,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, r := range flow.HandoffResults { // none is a 0, not a gap
		m.handoffs.WithLabelValues(string(flow.PathBPF), string(r))
	}
	return m
}

// buckets are from a backend in the same rack to one that hardly answers, in
// seconds; a round of programming spans about the same.
var buckets = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30,
}

// handoffBuckets are from a quiet flow to one that stood still until somebody
// noticed, in seconds.
var handoffBuckets = []float64{
	.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1,
}

func newHistogram(name, help string, buckets []float64) Histogram {
	return Histogram{prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})}
}

// CountHandoff counts one attempt to hand a flow over.
func (m *Metrics) CountHandoff(path flow.PathName, result flow.HandoffResult) {
	m.handoffs.WithLabelValues(string(path), string(result)).Inc()
}

// Register adds a collector of another package.
func (m *Metrics) Register(c prometheus.Collector) error {
	if err := m.registry.Register(c); err != nil {
		return fmt.Errorf("register a metrics collector: %w", err)
	}
	return nil
}

func (m *Metrics) collect(o *Options) error {
	if o.Health != nil {
		if err := m.Register(healthCollector{o.Health}); err != nil {
			return err
		}
	}
	return m.Register(&collector{registry: o.Registry, store: o.Store, affinity: o.Affinity, drops: o.Drops, few: o.FewSeries})
}

func (m *Metrics) handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
	})
}
