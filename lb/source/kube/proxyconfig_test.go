package kube

import (
	"net/netip"
	"strings"
	"testing"
)

const proxyHead = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// As kubeadm writes it, with everything that nobody has decided.
const kubeadmProxyConfig = proxyHead + `bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
clusterCIDR: 10.244.0.0/16,fd00:10:244::/56
configSyncPeriod: 0s
conntrack:
  maxPerCore: null
  min: null
  tcpBeLiberal: false
  tcpCloseWaitTimeout: null
  tcpEstablishedTimeout: null
  udpStreamTimeout: 0s
  udpTimeout: 0s
detectLocal:
  bridgeInterface: ""
  interfaceNamePrefix: ""
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables:
  localhostNodePorts: null
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
ipvs:
  excludeCIDRs: null
  minSyncPeriod: 0s
  scheduler: ""
  strictARP: false
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
metricsBindAddress: ""
mode: ""
nftables:
  masqueradeAll: false
  masqueradeBit: null
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel:
  enableDSR: false
  networkName: ""
`

func TestProxyConfigOfKubeadm(t *testing.T) {
	c, err := parseProxyConfig("config.conf", []byte(kubeadmProxyConfig))
	if err != nil {
		t.Fatal(err)
	}
	if c.Client.Kubeconfig != "/var/lib/kube-proxy/kubeconfig.conf" || len(c.ClusterCIDRs) != 2 || c.BindAddress != netip.IPv4Unspecified() {
		t.Errorf("%+v", c)
	}
	if c.MetricsAddress != "" || c.HealthAddress != "" || c.CloseWaitTimeout != nil || c.OOMScoreAdj != nil {
		t.Errorf("what is unset was read: %+v", c)
	}
}

func TestProxyConfigFields(t *testing.T) {
	c, err := parseProxyConfig("f", []byte(proxyHead+`bindAddress: 192.0.2.1
clientConnection: {kubeconfig: /k, qps: 5, burst: 10, contentType: application/json}
hostnameOverride: node-a
healthzBindAddress: 0.0.0.0
metricsBindAddress: "[::]:9000"
nodePortAddresses: [primary, 10.0.0.0/8, localhost]
detectLocalMode: NodeCIDR
conntrack: {tcpCloseWaitTimeout: 0s}
iptables: {localhostNodePorts: true}
oomScoreAdj: -999
`))
	if err != nil {
		t.Fatal(err)
	}
	if c.Client.QPS != 5 || c.Client.Burst != 10 || c.Client.ContentType != "application/json" || c.HostnameOverride != "node-a" {
		t.Errorf("%+v", c)
	}
	if c.HealthAddress != "0.0.0.0:10256" || c.MetricsAddress != "[::]:9000" {
		t.Errorf("addresses %q %q", c.HealthAddress, c.MetricsAddress)
	}
	if !c.NodePorts.Primary || len(c.NodePorts.Prefixes) != 3 {
		t.Errorf("node ports at %+v", c.NodePorts)
	}
	if c.CloseWaitTimeout == nil || *c.CloseWaitTimeout != 0 || *c.OOMScoreAdj != -999 {
		t.Errorf("%v %v", c.CloseWaitTimeout, c.OOMScoreAdj)
	}
}

func TestProxyConfigRefuses(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"mode", proxyHead + "mode: ipvs\n", "f:3: mode: "},
		{"object", proxyHead + "ipvs:\n  scheduler: rr\n", "f:3: ipvs: there is no IPVS here"},
		{"field beside one that is read", proxyHead + "iptables:\n  localhostNodePorts: null\n  syncPeriod: 30s\n", "f:5: iptables.syncPeriod: there are no iptables"},
		{"localhost", proxyHead + "iptables: {localhostNodePorts: false}\n", "nodePortAddresses"},
		{"conntrack", proxyHead + "conntrack:\n  maxPerCore: 32768\n", "f:4: conntrack.maxPerCore: "},
		{"unknown", proxyHead + "colour: red\n", "f:3: colour: is unknown here"},
		{"bridge", proxyHead + "detectLocalMode: BridgeInterface\n", "f:3: detectLocalMode: \"BridgeInterface\" is not built yet"},
		{"cidr", proxyHead + "clusterCIDR: 10.0.0.0\n", `f:3: clusterCIDR: "10.0.0.0" is not IP/BITS`},
		{"words", proxyHead + "nodePortAddresses: [primry]\n", "nor is it primary, localhost or all"},
		{"address", proxyHead + "healthzBindAddress: here\n", "is not IP:PORT"},
		{"close wait", proxyHead + "conntrack: {tcpCloseWaitTimeout: soon}\n", "is not a duration"},
		{"version", strings.Replace(proxyHead, "v1alpha1", "v2", 1), "use kubeproxy.config.k8s.io/v1alpha1"},
		{"kind", "kind: Pod\n", `kind "Pod" is not KubeProxyConfiguration`},
		{"a file of ours", "services: []\n", `kind "" is not`},
		{"empty", "", "there is no KubeProxyConfiguration"},
		{"twice", proxyHead + "---\n" + proxyHead, "f:4: there is a KubeProxyConfiguration before"},
		{"no YAML", "a: [", "not YAML"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseProxyConfig("f", []byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	_, err := parseProxyConfig("f", []byte(proxyHead+"mode: ipvs\nportRange: 1-2\n"))
	if n := strings.Count(err.Error(), "\n") + 1; n != 2 {
		t.Errorf("%d lines for two faults: %v", n, err)
	}
}

func TestNodePortAddressesOfANode(t *testing.T) {
	node := &Node{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("fd00::1")}}
	for _, tc := range []struct {
		name string
		n    NodePortAddresses
		node *Node
		bind string
		want string
	}{
		{"all", NodePortAddresses{}, node, "", "[]"},
		{"primary", NodePortAddresses{Primary: true}, node, "", "[192.0.2.1/32 fd00::1/128]"},
		{"bound", NodePortAddresses{Primary: true}, node, "192.0.2.9", "[192.0.2.9/32 fd00::1/128]"},
		{"bound to all", NodePortAddresses{Primary: true}, node, "0.0.0.0", "[192.0.2.1/32 fd00::1/128]"},
		{"no node yet", NodePortAddresses{Primary: true}, nil, "", "[127.0.0.1/32 ::1/128]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var bind netip.Addr
			if tc.bind != "" {
				bind = netip.MustParseAddr(tc.bind)
			}
			if got := stringOf(tc.n.on(tc.node, bind)); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func stringOf(list []netip.Prefix) string {
	words := []string{}
	for _, p := range list {
		words = append(words, p.String())
	}
	return "[" + strings.Join(words, " ") + "]"
}
