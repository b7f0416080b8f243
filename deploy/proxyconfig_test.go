package deploy

import (
	"testing"

	"github.com/baton-lb/baton/lb/source/kube"
)

// The configuration in the manifests is one that is taken.
func TestProxyConfig(t *testing.T) {
	c, err := kube.LoadProxyConfig("kubernetes/base/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if c.MetricsAddress != "0.0.0.0:10249" {
		t.Errorf("metrics are at %q, and the pod monitor asks at port 10249", c.MetricsAddress)
	}
}
