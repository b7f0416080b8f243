package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// KubernetesState is what metrics show of a source of Kubernetes objects.
type KubernetesState struct {
	Stale   time.Duration  // how long the API server has not been heard of; 0 = it is
	Objects map[string]int // by kind
	Faults  map[string]int // that stand now, by kind of object
	Queued  time.Time      // when a change came last; zero = never
	Synced  time.Time      // when all that had come was in force last; zero = never

	Services, Endpoints KubernetesChanges // of Services, and of slices of endpoints
}

// KubernetesChanges are those of one kind of objects.
type KubernetesChanges struct {
	Total   int // that have come
	Pending int // objects whose newest is not in force
}

const (
	helpKubeStale   = "How long the API server has not been heard of; 0 while it is."
	helpKubeObjects = "Objects of Kubernetes that are known."
	helpKubeFaults  = "Faults of objects, each of which keeps some part of it from being served."

	// These are kube-proxy's, whose dashboards go on working.
	helpSyncRules  = "Time in which one round of changes was put in force."
	helpNetProg    = "Time from a change of a pod or service to when it was in force here."
	helpSyncedLast = "When all changes that had come were in force last."
	helpQueuedLast = "When a change came last."
	helpServices   = "Changes of Services that have come."
	helpServicesIn = "Services whose newest change is not in force."
	helpSlices     = "Changes of slices of endpoints that have come."
	helpSlicesIn   = "Slices of endpoints whose newest change is not in force."
	kubeProxy      = "kubeproxy_"
)

var (
	descKubeStale   = prometheus.NewDesc("baton_kubernetes_stale_seconds", helpKubeStale, nil, nil)
	descKubeObjects = prometheus.NewDesc("baton_kubernetes_objects", helpKubeObjects, []string{"kind"}, nil)
	descKubeFaults  = prometheus.NewDesc("baton_kubernetes_faults", helpKubeFaults, []string{"kind"}, nil)
	descSyncedLast  = prometheus.NewDesc(kubeProxy+"sync_proxy_rules_last_timestamp_seconds", helpSyncedLast, nil, nil)
	descQueuedLast  = prometheus.NewDesc(kubeProxy+"sync_proxy_rules_last_queued_timestamp_seconds", helpQueuedLast, nil, nil)
	descServices    = prometheus.NewDesc(kubeProxy+"sync_proxy_rules_service_changes_total", helpServices, nil, nil)
	descServicesIn  = prometheus.NewDesc(kubeProxy+"sync_proxy_rules_service_changes_pending", helpServicesIn, nil, nil)
	descSlices      = prometheus.NewDesc(kubeProxy+"sync_proxy_rules_endpoint_changes_total", helpSlices, nil, nil)
	descSlicesIn    = prometheus.NewDesc(kubeProxy+"sync_proxy_rules_endpoint_changes_pending", helpSlicesIn, nil, nil)
)

// ForKubernetes has the metrics of a source of Kubernetes objects shown too.
func (m *Metrics) ForKubernetes(state func() KubernetesState) error {
	m.SyncRules = newHistogram(kubeProxy+"sync_proxy_rules_duration_seconds", helpSyncRules, syncRulesBuckets)
	m.NetworkProgramming = newHistogram(kubeProxy+"network_programming_duration_seconds", helpNetProg, networkProgrammingBuckets())
	for _, c := range []prometheus.Collector{m.SyncRules.h, m.NetworkProgramming.h, kubernetesCollector{state}} {
		if err := m.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// syncRulesBuckets are kube-proxy's: 1 ms to 16 s, in seconds.
var syncRulesBuckets = prometheus.ExponentialBuckets(.001, 2, 15)

// networkProgrammingBuckets are kube-proxy's: by the second for a minute, then wider
// up to five minutes.
func networkProgrammingBuckets() (all []float64) {
	all = append(all, 0, .25, .5)
	all = append(all, prometheus.LinearBuckets(1, 1, 59)...)
	all = append(all, prometheus.LinearBuckets(60, 5, 12)...)
	return append(all, prometheus.LinearBuckets(120, 30, 7)...)
}

// kubernetesCollector asks for the state when somebody scrapes.
type kubernetesCollector struct{ state func() KubernetesState }

var _ prometheus.Collector = kubernetesCollector{}

func (kubernetesCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descKubeStale, descKubeObjects, descKubeFaults, descSyncedLast, descQueuedLast, descServices, descServicesIn, descSlices, descSlicesIn,
	} {
		out <- d
	}
}

func (c kubernetesCollector) Collect(out chan<- prometheus.Metric) {
	st := c.state()
	out <- gauge(descKubeStale, st.Stale.Seconds())
	for kind, n := range st.Objects {
		out <- gauge(descKubeObjects, float64(n), kind)
	}
	for kind, n := range st.Faults {
		out <- gauge(descKubeFaults, float64(n), kind)
	}
	out <- gauge(descSyncedLast, unixSeconds(st.Synced))
	out <- gauge(descQueuedLast, unixSeconds(st.Queued))
	out <- counter(descServices, uint64(st.Services.Total))
	out <- gauge(descServicesIn, float64(st.Services.Pending))
	out <- counter(descSlices, uint64(st.Endpoints.Total))
	out <- gauge(descSlicesIn, float64(st.Endpoints.Pending))
}

// unixSeconds is 0 for a time that has not come yet.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / float64(time.Second)
}
