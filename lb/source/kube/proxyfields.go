package kube

import (
	"net/netip"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// proxyField is a field of a KubeProxyConfiguration that means something here.
type proxyField struct {
	read       func(*ProxyConfig, *yaml.Node) (problem string)
	zeroCounts bool // false and 0 say something
}

// asItIs is for fields that ask for what is so anyway.
func asItIs(*ProxyConfig, *yaml.Node) string { return "" }

func readText(to func(*ProxyConfig) *string) func(*ProxyConfig, *yaml.Node) string {
	return func(c *ProxyConfig, v *yaml.Node) string {
		if v.Kind != yaml.ScalarNode {
			return "is not a text"
		}
		*to(c) = v.Value
		return ""
	}
}

func readAddress(to func(*ProxyConfig) *string, port string) func(*ProxyConfig, *yaml.Node) string {
	return func(c *ProxyConfig, v *yaml.Node) string {
		address := withPort(v.Value, port)
		if _, err := netip.ParseAddrPort(address); err != nil {
			return strconv.Quote(v.Value) + " is not IP:PORT"
		}
		*to(c) = address
		return ""
	}
}

// proxyFields are those that are read, by their paths.
var proxyFields = map[string]proxyField{
	"apiVersion": {read: asItIs},
	"kind":       {read: asItIs},

	"clientConnection.kubeconfig":         {read: readText(func(c *ProxyConfig) *string { return &c.Client.Kubeconfig })},
	"clientConnection.acceptContentTypes": {read: readText(func(c *ProxyConfig) *string { return &c.Client.AcceptContentTypes })},
	"clientConnection.contentType":        {read: readText(func(c *ProxyConfig) *string { return &c.Client.ContentType })},
	"clientConnection.qps": {read: func(c *ProxyConfig, v *yaml.Node) string {
		return readNumber(v, func(n float64) { c.Client.QPS = float32(n) })
	}},
	"clientConnection.burst": {read: func(c *ProxyConfig, v *yaml.Node) string {
		return readNumber(v, func(n float64) { c.Client.Burst = int(n) })
	}},

	"hostnameOverride": {read: readText(func(c *ProxyConfig) *string { return &c.HostnameOverride })},
	"bindAddress": {read: func(c *ProxyConfig, v *yaml.Node) string {
		a, err := parseAddr(v.Value)
		if err != nil {
			return err.Error()
		}
		c.BindAddress = a
		return ""
	}},
	"bindAddressHardFail": {read: asItIs},
	"metricsBindAddress":  {read: readAddress(func(c *ProxyConfig) *string { return &c.MetricsAddress }, "10249")},
	"healthzBindAddress":  {read: readAddress(func(c *ProxyConfig) *string { return &c.HealthAddress }, "10256")},

	"nodePortAddresses": {read: func(c *ProxyConfig, v *yaml.Node) string {
		var words []string
		if err := v.Decode(&words); err != nil {
			return "is not a list of CIDRs"
		}
		n, err := ParseNodePortAddresses(words)
		if err != nil {
			return err.Error()
		}
		c.NodePorts = n
		return ""
	}},
	"clusterCIDR": {read: func(c *ProxyConfig, v *yaml.Node) string {
		list, err := ParseClusterCIDRs(v.Value)
		if err != nil {
			return err.Error()
		}
		c.ClusterCIDRs = list
		return ""
	}},
	"detectLocalMode": {read: func(_ *ProxyConfig, v *yaml.Node) string {
		switch v.Value {
		case "ClusterCIDR", "NodeCIDR":
			return ""
		}
		return strconv.Quote(v.Value) + " is not built yet: the clients inside are those of clusterCIDR and of the Node's podCIDRs; leave it out"
	}},

	"conntrack.tcpCloseWaitTimeout": {zeroCounts: true, read: func(c *ProxyConfig, v *yaml.Node) string {
		d, err := time.ParseDuration(v.Value)
		if err != nil || d < 0 {
			return strconv.Quote(v.Value) + " is not a duration, as 1h"
		}
		c.CloseWaitTimeout = &d
		return ""
	}},
	"oomScoreAdj": {zeroCounts: true, read: func(c *ProxyConfig, v *yaml.Node) string {
		n, err := strconv.Atoi(v.Value)
		if err != nil || n < -1000 || n > 1000 {
			return strconv.Quote(v.Value) + " is not a number from -1000 to 1000"
		}
		c.OOMScoreAdj = &n
		return ""
	}},
	"iptables.localhostNodePorts": {zeroCounts: true, read: func(_ *ProxyConfig, v *yaml.Node) string {
		if v.Value == "false" {
			return "node ports are served at localhost unless nodePortAddresses leaves it out: say there which addresses serve them"
		}
		return ""
	}},
}

func readNumber(v *yaml.Node, set func(float64)) string {
	n, err := strconv.ParseFloat(v.Value, 64)
	if err != nil {
		return strconv.Quote(v.Value) + " is not a number"
	}
	set(n)
	return ""
}

// proxyRefusals are fields that mean nothing here, or whole objects of them, each
// with what to do.
var proxyRefusals = []struct{ field, why string }{
	{"mode", "is kube-proxy's: there are no such modes here; leave it out"},
	{"iptables", "there are no iptables rules here: leave it out"},
	{"ipvs", "there is no IPVS here: leave it out (the annotation baton.dev/balance names an algorithm, per Service)"},
	{"nftables", "there are no nftables rules here: leave it out"},
	{"winkernel", "is for Windows: leave it out"},
	{"windowsRunAsService", "is for Windows: leave it out"},
	{"detectLocal", "is for modes of detectLocalMode that are not built yet: leave it out"},
	{"conntrack", "connections are not tracked by conntrack here: leave it out, or set the sysctls of net.netfilter by the host's own means"},
	{"logging", "is kube-proxy's: use --log-level and --log-format"},
	{"featureGates", "are kube-proxy's: leave them out"},
	{"configSyncPeriod", "everything is watched, and nothing read again by the clock: leave it out"},
	{"portRange", "has had no meaning since kube-proxy's userspace mode: leave it out"},
	{"enableProfiling", "profiles are on the admin socket, always, and never on TCP: leave it out"},
	{"showHiddenMetricsForVersion", "there are no hidden metrics here: leave it out"},
}
