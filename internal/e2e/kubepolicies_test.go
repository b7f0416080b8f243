package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// policies are Services whose clients are not all served alike: one for clients of this
// node's own pods only, and one behind a balancer's address for some sources.
func (c *cluster) policies(node string) string {
	text := fmt.Sprintf(`- apiVersion: v1
  kind: Service
  metadata: {name: near, namespace: shop}
  spec:
    type: NodePort
    externalTrafficPolicy: Local
    clusterIP: 10.96.0.20
    ports: [{name: http, port: 80, nodePort: 30081, protocol: TCP}, {name: dns, port: 53, nodePort: 30054, protocol: UDP}]
- apiVersion: v1
  kind: Service
  metadata: {name: some, namespace: shop}
  spec:
    type: LoadBalancer
    clusterIP: 10.96.0.21
    loadBalancerSourceRanges: ["%s/32"]
    ports: [{name: http, port: 80, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]
  status: {loadBalancer: {ingress: [{ip: 198.51.100.10, ipMode: VIP}]}}
`, c.Client.IP4)
	for _, name := range []string{"near", "some"} {
		text += fmt.Sprintf(`- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: %s-1, namespace: shop, labels: {kubernetes.io/service-name: %s}}
  addressType: IPv4
  ports: [{name: http, port: 8080, protocol: TCP}, {name: dns, port: 5353, protocol: UDP}]
  endpoints: [{addresses: [%q], nodeName: %s}]
`, name, name, c.Backends[0].IP4, node)
	}
	return text
}

// meet is what a client meets at an address: a name, "refused" or "silence".
func meet(from *testnet.Host, network string, at netip.AddrPort) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := from.DialContext(ctx, network, netip.AddrPort{}, at)
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		if network == "tcp" {
			_, err = testnet.ReadName(conn)
		} else {
			_, err = exchange(conn, []byte("who"))
		}
	}
	switch {
	case err == nil:
		return "a pod"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return "silence"
	}
	return err.Error()
}

// K1: of a service with policy Local and no endpoint here, clients from outside hear
// nothing, and those on the node are served; of one with none at all everybody is refused. A
// client outside of the source ranges does not see an open port.
func TestKubePolicies(t *testing.T) {
	eachMode(t, 1, func(t *testing.T, c *cluster) {
		stranger := c.AddClient("stranger")
		c.write(c.objects([]int{0}, c.policies("b")))
		c.start()
		near, lbIP := netip.AddrPortFrom(c.Balancer.IP4, 0), netip.MustParseAddrPort("198.51.100.10:0")
		at := func(a netip.AddrPort, port uint16) netip.AddrPort { return netip.AddrPortFrom(a.Addr(), port) }
		want := func(what string, from *testnet.Host, tcp, udp netip.AddrPort, answer string) {
			t.Helper()
			eventually(t, fmt.Sprintf("%s: %s meets %s", what, from.Name(), answer), func() error {
				if got := meet(from, "tcp", tcp); got != answer {
					return fmt.Errorf("tcp://%s: %s", tcp, got)
				}
				if got := meet(from, "udp", udp); got != answer {
					return fmt.Errorf("udp://%s: %s", udp, got)
				}
				return nil
			})
		}
		want("endpoints elsewhere", c.Client, at(near, 30081), at(near, 30054), "silence")
		want("endpoints elsewhere", c.Balancer, at(near, 30081), at(near, 30054), "a pod")
		want("source ranges", c.Client, at(lbIP, 80), at(lbIP, 53), "a pod")
		want("source ranges", stranger, at(lbIP, 80), at(lbIP, 53), "silence")

		c.write(c.objects([]int{0}, c.policies("a")))
		want("endpoints here", c.Client, at(near, 30081), at(near, 30054), "a pod")
		c.write(c.objects([]int{0}, strings.ReplaceAll(c.policies("a"), "nodeName: a}", "conditions: {ready: false, serving: false}}")))
		want("no endpoints", c.Client, at(near, 30081), at(near, 30054), "refused")
		want("no endpoints", c.Balancer, at(near, 30081), at(near, 30054), "refused")
	})
}

// B4: a balancer outside asks the health check node port whether to send clients to this
// node, at any address of it. It is told not to as soon as no endpoint here is ready, also
// when one on its way out still serves.
func TestKubeHealthCheckNodePort(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	endpoints := func(list ...string) string {
		return fmt.Sprintf(`- apiVersion: v1
  kind: Service
  metadata: {name: edge, namespace: shop}
  spec:
    type: LoadBalancer
    externalTrafficPolicy: Local
    healthCheckNodePort: 32100
    clusterIP: 10.96.0.30
    ports: [{port: 80, protocol: TCP}]
  status: {loadBalancer: {ingress: [{ip: 198.51.100.11, ipMode: VIP}]}}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: edge-1, namespace: shop, labels: {kubernetes.io/service-name: edge}}
  addressType: IPv4
  ports: [{port: 8080, protocol: TCP}]
  endpoints: [%s]
`, strings.Join(list, ", "))
	}
	endpoint := func(address netip.Addr, node, conditions string) string {
		return fmt.Sprintf("{addresses: [%q], nodeName: %s, conditions: {%s}}", address, node, conditions)
	}
	pod, away := c.Backends[0].IP4, netip.MustParseAddr("10.244.9.9")
	ready, leaving := "ready: true", "ready: false, serving: true, terminating: true"
	c.write(c.objects(nil, endpoints(endpoint(pod, "a", ready))))
	c.start()
	for _, tc := range []struct {
		name string
		list []string
		want int
	}{
		{"one here", []string{endpoint(pod, "a", ready)}, 200},
		{"on its way out", []string{endpoint(pod, "a", leaving)}, 503},
		{"back", []string{endpoint(pod, "a", ready)}, 200},
		{"only elsewhere", []string{endpoint(away, "b", ready)}, 503},
		{"here and elsewhere", []string{endpoint(away, "b", ready), endpoint(pod, "a", ready)}, 200},
		{"none", nil, 503},
	} {
		c.write(c.objects(nil, endpoints(tc.list...)))
		for _, at := range []netip.Addr{c.Balancer.IP4, c.Balancer.IP6} {
			eventually(t, fmt.Sprintf("%s: %s says %d", tc.name, at, tc.want), func() error {
				code, err := c.status(c.Client, netip.AddrPortFrom(at, 32100))
				if err == nil && code != tc.want {
					err = fmt.Errorf("it says %d", code)
				}
				return err
			})
		}
	}
}

// status asks over HTTP.
func (c *cluster) status(from *testnet.Host, at netip.AddrPort) (int, error) {
	web := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return from.DialContext(ctx, "tcp", netip.AddrPort{}, at)
		},
	}}
	resp, err := web.Get("http://node/")
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}
