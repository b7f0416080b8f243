package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/baton-lb/baton/lb/health"
)

// HealthChecker counts what is found out about backends.
type HealthChecker interface{ Stats() health.Stats }

var _ HealthChecker = (*health.Checker)(nil)

const (
	helpProbesTotal    = "Health probes, by how they ended."
	helpProbesLate     = "Health probes that waited long in line for their turn."
	helpEjectionsTotal = "Times a backend was ejected because connections to it kept failing."
	helpEjected        = "Backends that are ejected now."
	helpDown           = "Backends that are down by their probe now."
)

var (
	descProbes     = prometheus.NewDesc("baton_health_probes_total", helpProbesTotal, []string{"probe", "result"}, nil)
	descProbesLate = prometheus.NewDesc("baton_health_probes_late_total", helpProbesLate, nil, nil)
	descEjections  = prometheus.NewDesc("baton_health_ejections_total", helpEjectionsTotal, nil, nil)
	descEjected    = prometheus.NewDesc("baton_health_ejected", helpEjected, nil, nil)
	descDown       = prometheus.NewDesc("baton_health_down", helpDown, nil, nil)
)

// healthCollector reads a HealthChecker when somebody scrapes.
type healthCollector struct{ checker HealthChecker }

var _ prometheus.Collector = healthCollector{}

func (healthCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descProbes, descProbesLate, descEjections, descEjected, descDown} {
		out <- d
	}
}

func (h healthCollector) Collect(out chan<- prometheus.Metric) {
	st := h.checker.Stats()
	for k, n := range st.Probes {
		out <- counter(descProbes, n, string(k.Probe), string(k.Result))
	}
	out <- counter(descProbesLate, st.Late)
	out <- counter(descEjections, st.Ejections)
	out <- gauge(descEjected, float64(st.Ejected))
	out <- gauge(descDown, float64(st.Down))
}
