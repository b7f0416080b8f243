package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// lan is a node of a cluster in one network with another node and a router, behind which
// a client is. An endpoint is the other node itself: a pod with hostNetwork.
//
//	client --- router --+-- node
//	                    +-- other
type lan struct {
	client, router, node, other *testnet.Host
	neighbour                   *testnet.Host // a client in the network itself
	otherAt                     netip.Addr
}

func newLAN(t *testing.T) *lan {
	n := testnet.New(t)
	w := &lan{client: n.Host("client"), router: n.Host("router"), node: n.Host("node"), other: n.Host("other"), neighbour: n.Host("neighbour")}
	bridge := n.Bridge(n.Host("switch"), "br0")
	at := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, last}) }
	w.otherAt = at(3)
	for i, h := range []*testnet.Host{w.router, w.node, w.other, w.neighbour} {
		h.AddAddr(bridge.Join(h), netip.PrefixFrom(at(byte(i+1)), 24))
	}
	behind := n.Connect(w.router, w.client)
	w.router.Forwarding(true)
	w.client.DefaultVia(behind.A.IP4)
	for _, h := range []*testnet.Host{w.node, w.other} {
		h.DefaultVia(at(1))
	}
	for _, h := range []*testnet.Host{w.router, w.neighbour} {
		h.AddRoute(netip.PrefixFrom(clusterIP4, 32), at(2))
	}
	w.other.Serve(8080, tellPeer)
	w.other.ServeUDP(netip.AddrPortFrom(w.otherAt, 5353), testnet.TellPeerUDP)
	return w
}

// run serves service web of the other node on the node.
func (w *lan) run(t *testing.T, flags ...string) *baton {
	dir := t.TempDir()
	c := &cluster{Star: &testnet.Star{Balancer: w.node, Backends: []*testnet.Host{w.other}}, t: t, dir: dir}
	text := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, uid: "1"}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ipFamilies: [IPv4], ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}, {name: dns, port: 5353, protocol: UDP}]
endpoints: [{addresses: [%q], nodeName: other, conditions: {ready: true}}]
`, w.otherAt)
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return c.start(flags...)
}

// An endpoint that answers a client by itself, because both are in the node's network or
// the client's router is, is shown the node's address, and the flow says why. Of a client
// that is known to be outside of the cluster nothing else is asked.
func TestEndpointBesideItsClient(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags []string
		why   flow.NotTransparent
	}{
		{"no CIDR known", nil, flow.NotTransparentOtherWay},
		{"outside of the cluster's CIDR", []string{"--cluster-cidr", "10.244.0.0/16"}, flow.NotTransparentOutside},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newLAN(t)
			b := w.run(t, tt.flags...)
			seen := between{vip: clusterIP4}
			for _, from := range []*testnet.Host{w.client, w.neighbour} {
				for network, port := range map[string]uint16{"tcp": 80, "udp": 53} {
					c, saw := seen.asks(t, from, network, netip.AddrPort{}, port)
					if got := netip.MustParseAddrPort(saw).Addr(); got != netip.AddrFrom4([4]byte{10, 77, 0, 2}) {
						t.Errorf("%s of %s: the endpoint saw %s", network, from.Name(), saw)
					}
					client := netip.MustParseAddrPort(c.LocalAddr().String())
					if v := b.shownFlow(t, network, client, port); v.ClientAddress != flow.ClientMasked || v.NotTransparent != tt.why {
						t.Errorf("%s of %s: the record says %s %q, want %q", network, from.Name(), v.ClientAddress, v.NotTransparent, tt.why)
					}
				}
			}
		})
	}
}
