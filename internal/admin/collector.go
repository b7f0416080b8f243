package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// What the metrics mean, as /metrics says it.
const (
	helpFlowsActive        = "Open flows."
	helpFlowsTotal         = "Ended flows, by who ended them and why."
	helpBytesTotal         = "Payload bytes delivered, each counted once; live flows included."
	helpBackendUp          = "1 when new flows may go to the backend, else 0."
	helpBackends           = "Backends that are listed."
	helpBackendsUp         = "Backends to which new flows may go."
	helpDialSeconds        = "Time until a backend has answered, of attempts that succeeded."
	helpDialFailuresTotal  = "Attempts to reach a backend that failed."
	helpAffinityEntries    = "Clients that are kept at a backend."
	helpDropsTotal         = "What was turned away or dropped before it became a flow, and packets dropped in the kernel."
	helpHandoffsTotal      = "Attempts to hand a flow over to the kernel, by how they ended."
	helpHandoffSeconds     = "Time in which the packets of a flow were held while it was handed over."
	helpProgrammingSeconds = "Time in which one round of changes was put in force."
)

var (
	descFlowsActive = prometheus.NewDesc("baton_flows_active", helpFlowsActive,
		[]string{"service", "protocol", "path"}, nil)
	descFlowsTotal = prometheus.NewDesc("baton_flows_total", helpFlowsTotal,
		[]string{"service", "protocol", "path", "ended_by", "reason"}, nil)
	descBytesTotal = prometheus.NewDesc("baton_bytes_total", helpBytesTotal,
		[]string{"service", "direction", "path"}, nil)
	descBackendUp = prometheus.NewDesc("baton_backend_up", helpBackendUp,
		[]string{"service", "backend"}, nil)
	descBackends = prometheus.NewDesc("baton_backends", helpBackends,
		[]string{"service"}, nil)
	descBackendsUp = prometheus.NewDesc("baton_backends_up", helpBackendsUp,
		[]string{"service"}, nil)
	descDialFailures = prometheus.NewDesc("baton_dial_failures_total", helpDialFailuresTotal,
		[]string{"service", "backend", "reason"}, nil)
	descAffinity = prometheus.NewDesc("baton_affinity_entries", helpAffinityEntries,
		[]string{"service"}, nil)
	descDrops = prometheus.NewDesc("baton_drops_total", helpDropsTotal,
		[]string{"reason"}, nil)
)

// collector reads what others count when somebody scrapes. Labels are bounded
// by the configuration: names of services, addresses of backends, and words of
// closed lists.
type collector struct {
	registry *flow.Registry
	store    Store
	affinity AffinityTable
	drops    func() map[flow.Drop]uint64 // beside the registry's; may be nil
	few      bool                        // no series of single backends
}

var _ prometheus.Collector = (*collector)(nil)

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descFlowsActive, descFlowsTotal, descBytesTotal, descBackendUp, descBackends, descBackendsUp, descDialFailures, descAffinity, descDrops,
	} {
		out <- d
	}
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.collectFlows(out)
	c.collectBackends(out)
	for k, n := range c.registry.DialFailures() {
		out <- counter(descDialFailures, n, k.Service, k.Backend.String(), string(k.Reason))
	}
	var more map[flow.Drop]uint64
	if c.drops != nil {
		more = c.drops()
	}
	for why, n := range c.registry.DropCounts() {
		out <- counter(descDrops, n+more[why], string(why))
	}
}

func (c *collector) collectFlows(out chan<- prometheus.Metric) {
	st := c.registry.Stats()
	// A service without flows is a 0, not a gap.
	for svc := range c.store.Snapshot().Services() {
		for i := range svc.Frontends {
			k := flow.ActiveKey{Service: svc.Name, Proto: svc.Frontends[i].Proto, Path: flow.PathUserspace}
			st.Active[k] += 0
		}
	}
	for k, n := range byPath(st.Active, func(k *flow.ActiveKey) *flow.PathName { return &k.Path }) {
		out <- gauge(descFlowsActive, float64(n), k.Service, k.Proto.String(), string(k.Path))
	}
	for k, n := range byPath(st.Ended, func(k *flow.EndedKey) *flow.PathName { return &k.Path }) {
		out <- counter(descFlowsTotal, n, k.Service, k.Proto.String(), string(k.Path), string(k.By), string(k.Reason))
	}
	for k, n := range byPath(st.Bytes, func(k *flow.BytesKey) *flow.PathName { return &k.Path }) {
		out <- counter(descBytesTotal, n, k.Service, string(k.Direction), string(k.Path))
	}
}

func (c *collector) collectBackends(out chan<- prometheus.Metric) {
	for svc := range c.store.Snapshot().Services() {
		all := 0.0
		for _, b := range svc.Pool {
			up := 0.0
			if b.TakesNew() {
				up = 1
			}
			all += up
			if !c.few {
				out <- gauge(descBackendUp, up, svc.Name, b.Address.String())
			}
		}
		out <- gauge(descBackends, float64(len(svc.Pool)), svc.Name)
		out <- gauge(descBackendsUp, all, svc.Name)
		if c.affinity != nil && svc.Affinity.By != lb.NoAffinity {
			out <- gauge(descAffinity, float64(c.affinity.Entries(svc.Name)), svc.Name)
		}
	}
}

// byPath sums what is counted at userspace and what no path carries yet: it is
// in userspace that a flow is accepted and dialled.
func byPath[K comparable, N int64 | uint64](m map[K]N, path func(*K) *flow.PathName) map[K]N {
	out := make(map[K]N, len(m))
	for k, n := range m {
		if p := path(&k); *p == "" {
			*p = flow.PathUserspace
		}
		out[k] += n
	}
	return out
}

func counter(d *prometheus.Desc, n uint64, labels ...string) prometheus.Metric {
	return metric(d, prometheus.CounterValue, float64(n), labels)
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return metric(d, prometheus.GaugeValue, v, labels)
}

// metric is an error in the answer when a label is no UTF-8.
func metric(d *prometheus.Desc, t prometheus.ValueType, v float64, labels []string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(d, t, v, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(d, err)
	}
	return m
}
