package admin

import (
	"strings"
	"testing"
	"time"
)

func TestKubernetesMetrics(t *testing.T) {
	m := NewMetrics()
	state := KubernetesState{
		Stale: 90 * time.Second, Queued: time.Unix(1000, 5e8), Synced: time.Unix(1001, 0),
		Objects: map[string]int{"Service": 3}, Faults: map[string]int{"Service": 1, "EndpointSlice": 0},
		Services: KubernetesChanges{Total: 7, Pending: 2}, Endpoints: KubernetesChanges{Total: 11, Pending: 3},
	}
	if err := m.ForKubernetes(func() KubernetesState { return state }); err != nil {
		t.Fatal(err)
	}
	in := newInstance(t, func(o *Options) { o.Metrics = m })
	m.SyncRules.Observe(3 * time.Millisecond)
	m.NetworkProgramming.Observe(1500 * time.Millisecond)
	_, body := in.getTCP("/metrics")
	for _, want := range []string{
		"baton_kubernetes_stale_seconds 90",
		`baton_kubernetes_objects{kind="Service"} 3`,
		`baton_kubernetes_faults{kind="Service"} 1`,
		`baton_kubernetes_faults{kind="EndpointSlice"} 0`,
		`kubeproxy_sync_proxy_rules_duration_seconds_bucket{le="0.002"} 0`,
		`kubeproxy_sync_proxy_rules_duration_seconds_bucket{le="0.004"} 1`,
		`kubeproxy_sync_proxy_rules_duration_seconds_bucket{le="16.384"} 1`,
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds 1001",
		"kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 1000.5",
		"kubeproxy_sync_proxy_rules_service_changes_total 7",
		"kubeproxy_sync_proxy_rules_service_changes_pending 2",
		"kubeproxy_sync_proxy_rules_endpoint_changes_total 11",
		"kubeproxy_sync_proxy_rules_endpoint_changes_pending 3",
		`kubeproxy_network_programming_duration_seconds_bucket{le="1"} 0`,
		`kubeproxy_network_programming_duration_seconds_bucket{le="2"} 1`,
		`kubeproxy_network_programming_duration_seconds_bucket{le="300"} 1`,
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

// What kube-proxy's dashboards ask for is not there where nobody has Kubernetes.
func TestNoKubernetesMetricsWithoutKubernetes(t *testing.T) {
	if _, body := newInstance(t).getTCP("/metrics"); strings.Contains(body, "kubeproxy_") || strings.Contains(body, "baton_kubernetes") {
		t.Error("metrics of Kubernetes without Kubernetes")
	}
}
