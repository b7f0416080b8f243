package kube

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// row is one row of the table in docs/kubernetes.md.
type row struct {
	name    string
	options Options
	objects []any
	want    string // what is served, as world.lines writes it
	faults  string
}

// web is the usual slice: an endpoint on this node, one on another.
func web() any { return slice("web-1", "web", "8080", "10.244.1.2 a", "10.244.2.2 b") }

func of(objects ...any) []any { return objects }

func prefixes(list ...string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

var rows = []row{
	{
		name:    "cluster-ip",
		objects: of(service("web", "clusterIP: 10.96.0.10, ports: [{port: 80}]"), web()),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080`,
	},
	{
		name:    "node-port",
		objects: of(service("web", "type: NodePort, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}]"), web()),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://0.0.0.0:30080 masked -> 10.244.1.2:8080 10.244.2.2:8080`,
	},
	{
		name:    "node-port-addresses",
		options: Options{NodePortAddresses: prefixes("192.0.2.0/24", "127.0.0.0/8", "198.51.100.0/24")},
		objects: of(service("web", "type: NodePort, clusterIPs: [10.96.0.10, 'fd96::10'], ports: [{port: 80, nodePort: 30080}]"), web()),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://[fd96::10]:80 transparent -> refuse
			tcp://192.0.2.1:30080 masked -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://127.0.0.1:30080 masked -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://[::]:30080 masked -> refuse`,
	},
	{
		name: "load-balancer-ip",
		objects: of(with(service("web", "type: LoadBalancer, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}]"),
			"status: {loadBalancer: {ingress: [{ip: 203.0.113.1, ipMode: VIP}, {ip: 203.0.113.2}]}}"), web()),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://203.0.113.1:80 masked -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://203.0.113.2:80 masked -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://0.0.0.0:30080 masked -> 10.244.1.2:8080 10.244.2.2:8080`,
	},
	{
		name: "load-balancer-proxy",
		objects: of(with(service("web", "type: LoadBalancer, clusterIP: 10.96.0.10, ports: [{port: 80}]"),
			"status: {loadBalancer: {ingress: [{ip: 203.0.113.1, ipMode: Proxy}, {hostname: lb.example}, {ip: 'fd03::1'}]}}"), web()),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080`,
	},
	{
		name:    "external-ips",
		objects: of(service("web", "clusterIP: 10.96.0.10, externalIPs: [198.51.100.1, 198.51.100.1, 198.51.100.2], ports: [{port: 80}]"), web()),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://198.51.100.1:80 masked -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://198.51.100.2:80 masked -> 10.244.1.2:8080 10.244.2.2:8080`,
	},
	{
		name:    "headless",
		objects: of(service("web", "clusterIP: None, ports: [{port: 80}]"), web()),
	},
	{
		name:    "external-name",
		objects: of(service("web", "type: ExternalName, externalName: web.example, clusterIP: 10.96.0.10, ports: [{port: 80}]"), web()),
	},
	{
		name: "other-proxy",
		objects: of(
			with(service("web", "clusterIP: 10.96.0.10, ports: [{port: 80}]"), "metadata: {labels: {service.kubernetes.io/service-proxy-name: other}}"), web(),
			with(service("void", "clusterIP: 10.96.0.11, ports: [{port: 80}]"), "metadata: {labels: {service.kubernetes.io/headless: ''}}"),
			service("ours", "clusterIP: 10.96.0.12, ports: [{port: 80}]"), labelled(slice("theirs", "ours", "80", "10.244.1.3 a"), labelProxyName, "other"),
		),
		want: `
			default/ours
			tcp://10.96.0.12:80 transparent -> refuse`,
	},
	{
		name: "named-target-ports",
		objects: of(service("web", "clusterIP: 10.96.0.10, ports: [{name: http, port: 80, targetPort: web}]"),
			slice("web-1", "web", "http 8080", "10.244.1.2 a"), slice("web-2", "web", "http 9090", "10.244.2.2 b")),
		want: `
			default/web:http
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:9090`,
	},
	{
		name: "several-ports",
		objects: of(service("web", "clusterIP: 10.96.0.10, ports: [{name: http, port: 80}, {name: https, port: 443}, {name: admin, port: 9}]"),
			slice("web-1", "web", "https 8443, http 8080", "10.244.1.2 a")),
		want: `
			default/web:admin
			tcp://10.96.0.10:9 transparent -> refuse
			default/web:http
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080
			default/web:https
			tcp://10.96.0.10:443 transparent -> 10.244.1.2:8443`,
	},
	{
		name: "one-number-tcp-udp",
		objects: of(service("dns", "clusterIP: 10.96.0.10, type: NodePort, ports: [{name: tcp, port: 53, nodePort: 30053}, {name: udp, port: 53, nodePort: 30053, protocol: UDP}]"),
			slice("dns-1", "dns", "tcp 53, udp 5353 UDP", "10.244.1.2 a"),
			service("mix", "clusterIP: 10.96.0.11, ports: [{name: x, port: 53}]"), slice("mix-1", "mix", "x 53 UDP", "10.244.1.3 a")),
		want: `
			default/dns:tcp
			tcp://10.96.0.10:53 transparent -> 10.244.1.2:53
			tcp://0.0.0.0:30053 masked -> 10.244.1.2:53
			default/dns:udp
			udp://10.96.0.10:53 transparent -> 10.244.1.2:5353
			udp://0.0.0.0:30053 masked -> 10.244.1.2:5353
			default/mix:x
			tcp://10.96.0.11:53 transparent -> refuse`,
	},
	{
		name: "sctp",
		objects: of(service("web", "clusterIP: 10.96.0.10, externalIPs: [198.51.100.1], ports: [{name: sig, port: 3868, protocol: SCTP}, {name: http, port: 80}]"),
			slice("web-1", "web", "http 8080, sig 3868 SCTP", "10.244.1.2 a")),
		want: `
			default/web:http
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080
			tcp://198.51.100.1:80 masked -> 10.244.1.2:8080`,
		faults: `Service default/web: spec.ports[0]: port "sig" is not served: an sctp frontend is not built yet in this version`,
	},
	{
		name: "session-affinity",
		objects: of(
			service("a", "clusterIP: 10.96.0.10, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}, ports: [{port: 80}]"),
			service("b", "clusterIP: 10.96.0.11, sessionAffinity: ClientIP, ports: [{port: 80}]"),
			service("c", "clusterIP: 10.96.0.12, sessionAffinity: None, ports: [{port: 80}]"),
		),
		want: `
			default/a affinity=client-ip/1m0s
			tcp://10.96.0.10:80 transparent -> refuse
			default/b affinity=client-ip/3h0m0s
			tcp://10.96.0.11:80 transparent -> refuse
			default/c
			tcp://10.96.0.12:80 transparent -> refuse`,
	},
	{
		name: "internal-policy-local",
		objects: of(service("web", "clusterIP: 10.96.0.10, internalTrafficPolicy: Local, type: NodePort, ports: [{port: 80, nodePort: 30080}]"), web(),
			service("far", "clusterIP: 10.96.0.11, internalTrafficPolicy: Local, ports: [{port: 80}]"), slice("far-1", "far", "80", "10.244.2.3 b"),
			service("void", "clusterIP: 10.96.0.12, internalTrafficPolicy: Local, ports: [{port: 80}]"), slice("void-1", "void", "80", "10.244.1.3 a notready")),
		want: `
			default/far
			tcp://10.96.0.11:80 transparent -> drop
			default/void
			tcp://10.96.0.12:80 transparent -> refuse
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080
			tcp://0.0.0.0:30080 masked -> 10.244.1.2:8080 10.244.2.2:8080`,
	},
	{
		name: "external-policy-local",
		objects: of(with(service("web", "type: LoadBalancer, clusterIP: 10.96.0.10, externalTrafficPolicy: Local, externalIPs: [198.51.100.1], ports: [{port: 80, nodePort: 30080}]"),
			"status: {loadBalancer: {ingress: [{ip: 203.0.113.1}]}}"), web()),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://203.0.113.1:80 transparent -> 10.244.1.2:8080 inside [127.0.0.0/8 10.244.1.0/24] -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://198.51.100.1:80 transparent -> 10.244.1.2:8080 inside [127.0.0.0/8 10.244.1.0/24] -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://0.0.0.0:30080 transparent -> 10.244.1.2:8080 inside [127.0.0.0/8 10.244.1.0/24] -> 10.244.1.2:8080 10.244.2.2:8080`,
	},
	{
		name: "external-policy-local-none-here",
		objects: of(service("far", "type: NodePort, clusterIP: 10.96.0.11, externalTrafficPolicy: Local, ports: [{port: 80, nodePort: 30080}]"), slice("far-1", "far", "80", "10.244.2.3 b"),
			service("void", "type: NodePort, clusterIP: 10.96.0.12, externalTrafficPolicy: Local, ports: [{port: 80, nodePort: 30081}]"), slice("void-1", "void", "80", "10.244.1.3 a notready")),
		want: `
			default/far
			tcp://10.96.0.11:80 transparent -> 10.244.2.3:80
			tcp://0.0.0.0:30080 transparent -> drop inside [127.0.0.0/8 10.244.1.0/24] -> 10.244.2.3:80
			default/void
			tcp://10.96.0.12:80 transparent -> refuse
			tcp://0.0.0.0:30081 transparent -> refuse inside [127.0.0.0/8 10.244.1.0/24] -> refuse`,
	},
	{
		name:    "inside-cluster-cidrs",
		options: Options{ClusterCIDRs: prefixes("10.244.0.0/16", "fd00:244::/48")},
		objects: of(service("web", "type: NodePort, clusterIPs: [10.96.0.10, 'fd96::10'], externalTrafficPolicy: Local, ports: [{port: 80, nodePort: 30080}]"), web()),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent of [10.244.0.0/16] -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://[fd96::10]:80 transparent of [fd00:244::/48] -> refuse
			tcp://0.0.0.0:30080 transparent -> 10.244.1.2:8080 inside [127.0.0.0/8 10.244.0.0/16] -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://[::]:30080 transparent -> refuse inside [::1/128 fd00:244::/48] -> refuse`,
	},
	{
		name:    "outside-at-cluster-ips",
		options: Options{ClusterCIDRs: prefixes("10.244.0.0/16")},
		objects: of(
			service("web", "clusterIPs: [10.96.0.10, 'fd96::10'], externalIPs: [198.51.100.1], ports: [{port: 80}]"), web(),
			with(service("kept", "clusterIP: 10.96.0.11, ports: [{port: 80}]"), "metadata: {annotations: {baton.dev/client-address: transparent}}")),
		want: `
			default/kept client=transparent
			tcp://10.96.0.11:80 -> refuse
			default/web
			tcp://10.96.0.10:80 transparent of [10.244.0.0/16] -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://[fd96::10]:80 transparent -> refuse
			tcp://198.51.100.1:80 masked -> 10.244.1.2:8080 10.244.2.2:8080`,
	},
	{
		name: "no-endpoints",
		objects: of(service("web", "type: NodePort, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}]"),
			slice("web-1", "web", "8080", "10.244.1.2 a notready", "10.244.2.2 b gone")),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> refuse
			tcp://0.0.0.0:30080 masked -> refuse`,
	},
	{
		name: "health-check-node-port",
		objects: of(service("web", "type: LoadBalancer, clusterIP: 10.96.0.10, externalTrafficPolicy: Local, healthCheckNodePort: 32000, ports: [{name: a, port: 80}, {name: b, port: 81}]"),
			service("not", "type: NodePort, clusterIP: 10.96.0.11, externalTrafficPolicy: Local, healthCheckNodePort: 32001, ports: [{port: 80}]")),
		want: `
			default/not
			tcp://10.96.0.11:80 transparent -> refuse
			default/web:a health=32000
			tcp://10.96.0.10:80 transparent -> refuse
			default/web:b health=32000
			tcp://10.96.0.10:81 transparent -> refuse`,
	},
	{
		name: "source-ranges",
		objects: of(with(service("web", "type: LoadBalancer, clusterIPs: [10.96.0.10, 'fd96::10'], externalIPs: [198.51.100.1, 203.0.113.1], loadBalancerSourceRanges: [' 192.0.2.9/24 ', 10.0.0.0/8], ports: [{port: 80, nodePort: 30080}]"),
			"status: {loadBalancer: {ingress: [{ip: 203.0.113.1}, {ip: '2001:db8:f::1'}]}}")),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> refuse
			tcp://[fd96::10]:80 transparent -> refuse
			tcp://203.0.113.1:80 masked from [192.0.2.0/24 10.0.0.0/8] -> refuse
			tcp://[2001:db8:f::1]:80 masked -> refuse
			tcp://198.51.100.1:80 masked -> refuse
			tcp://0.0.0.0:30080 masked -> refuse
			tcp://[::]:30080 masked -> refuse`,
	},
	{
		name: "ready-before-terminating",
		objects: of(service("web", "clusterIP: 10.96.0.10, internalTrafficPolicy: Cluster, ports: [{port: 80}]"),
			slice("web-1", "web", "8080", "10.244.1.2 a terminating", "10.244.2.2 b", "10.244.2.3 b gone", "10.244.2.4 b notready")),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.2.2:8080`,
	},
	{
		name: "only-terminating",
		objects: of(service("web", "type: NodePort, clusterIP: 10.96.0.10, externalTrafficPolicy: Local, ports: [{port: 80, nodePort: 30080}]"),
			slice("web-1", "web", "8080", "10.244.1.2 a terminating", "10.244.2.2 b", "10.244.1.3 a gone"),
			service("all", "clusterIP: 10.96.0.11, ports: [{port: 80}]"),
			slice("all-1", "all", "8080", "10.244.1.4 a terminating", "10.244.2.4 b terminating", "10.244.1.5 a gone")),
		want: `
			default/all
			tcp://10.96.0.11:80 transparent -> 10.244.1.4:8080 10.244.2.4:8080
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.2.2:8080
			tcp://0.0.0.0:30080 transparent -> 10.244.1.2:8080 inside [127.0.0.0/8 10.244.1.0/24] -> 10.244.2.2:8080`,
	},
	{
		// The controller then calls endpoints ready that are not, terminating ones too.
		name: "publish-not-ready",
		objects: of(service("web", "clusterIP: 10.96.0.10, publishNotReadyAddresses: true, ports: [{port: 80}]"), func() any {
			s := slice("web-1", "web", "8080", "10.244.1.2 a terminating", "10.244.2.2 b")
			s.Endpoints[0].Conditions.Ready = s.Endpoints[1].Conditions.Ready
			return s
		}()),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080`,
	},
	{
		name: "unknown-conditions",
		objects: of(service("web", "clusterIP: 10.96.0.10, ports: [{port: 80}]"), func() any {
			s := slice("web-1", "web", "8080", "10.244.1.2 a", "10.244.2.2 b notready")
			s.Endpoints[0].Conditions.Ready, s.Endpoints[0].Conditions.Serving, s.Endpoints[0].Conditions.Terminating = nil, nil, nil
			s.Endpoints[1].Conditions.Serving = nil
			return s
		}(), service("old", "clusterIP: 10.96.0.11, ports: [{port: 80}]"), func() any {
			s := slice("old-1", "old", "8080", "10.244.1.3 a terminating", "10.244.1.4 a terminating")
			s.Endpoints[0].Conditions.Serving = nil
			s.Endpoints[1].Conditions.Terminating = nil
			return s
		}()),
		want: `
			default/old
			tcp://10.96.0.11:80 transparent -> refuse
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080`,
	},
	{
		name: "duplicate-endpoints",
		objects: of(service("web", "clusterIP: 10.96.0.10, ports: [{port: 80}]"),
			slice("web-1", "web", "8080", "10.244.1.2 a notready", "10.244.2.2 b"), slice("web-2", "web", "8080", "10.244.1.2 a", "10.244.2.2 b terminating")),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080`,
	},
	{
		name: "zone-hints",
		objects: of(service("web", "type: NodePort, clusterIP: 10.96.0.10, trafficDistribution: PreferClose, ports: [{port: 80, nodePort: 30080}]"),
			slice("web-1", "web", "8080", "10.244.1.2 a zone=z2", "10.244.2.2 b zone=z1 zone=z3", "10.244.3.2 c zone=z1 terminating")),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.2.2:8080
			tcp://0.0.0.0:30080 masked -> 10.244.2.2:8080`,
	},
	{
		name: "hints-not-for-all",
		objects: of(service("web", "clusterIP: 10.96.0.10, ports: [{port: 80}]"),
			slice("web-1", "web", "8080", "10.244.1.2 a zone=z2", "10.244.2.2 b zone=z1"), slice("web-2", "web", "8080", "10.244.3.2 c"),
			service("all", "clusterIP: 10.96.0.11, ports: [{port: 80}]"),
			slice("all-1", "all", "8080", "10.244.1.3 a zone=z2", "10.244.2.3 b zone=z1", "10.244.3.3 c notready"),
			service("node", "clusterIP: 10.96.0.12, ports: [{port: 80}]"),
			slice("node-1", "node", "8080", "10.244.1.4 a node=a", "10.244.2.4 b")),
		want: `
			default/all
			tcp://10.96.0.11:80 transparent -> 10.244.2.3:8080
			default/node
			tcp://10.96.0.12:80 transparent -> 10.244.1.4:8080 10.244.2.4:8080
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080 10.244.3.2:8080`,
	},
	{
		name: "hints-for-other-zones",
		objects: of(service("web", "clusterIP: 10.96.0.10, ports: [{port: 80}]"),
			slice("web-1", "web", "8080", "10.244.1.2 a zone=z2", "10.244.2.2 b zone=z3")),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080`,
	},
	{
		name: "hints-and-only-terminating",
		objects: of(service("web", "clusterIP: 10.96.0.10, ports: [{port: 80}]"),
			slice("web-1", "web", "8080", "10.244.1.2 a zone=z2 terminating", "10.244.2.2 b zone=z1 terminating")),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080`,
	},
	{
		name: "unknown-zone",
		objects: of(readYAML[corev1.Node](`metadata: {name: a}`),
			service("web", "clusterIP: 10.96.0.10, ports: [{port: 80}]"),
			slice("web-1", "web", "8080", "10.244.1.2 a zone=z1", "10.244.2.2 b zone=z2")),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080`,
	},
	{
		name: "node-hints",
		objects: of(service("web", "clusterIP: 10.96.0.10, trafficDistribution: PreferSameNode, ports: [{port: 80}]"),
			slice("web-1", "web", "8080", "10.244.1.2 a node=a zone=z1", "10.244.2.2 b node=b zone=z1", "10.244.3.2 c node=c zone=z2"),
			service("zone", "clusterIP: 10.96.0.11, trafficDistribution: PreferSameNode, ports: [{port: 80}]"),
			slice("zone-1", "zone", "8080", "10.244.2.3 b node=b zone=z1", "10.244.3.3 c node=c zone=z2")),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080
			default/zone
			tcp://10.96.0.11:80 transparent -> 10.244.2.3:8080`,
	},
	{
		name: "hints-and-policy-local",
		objects: of(service("web", "type: NodePort, clusterIP: 10.96.0.10, externalTrafficPolicy: Local, ports: [{port: 80, nodePort: 30080}]"),
			slice("web-1", "web", "8080", "10.244.1.2 a zone=z2", "10.244.2.2 b zone=z1")),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.2.2:8080
			tcp://0.0.0.0:30080 transparent -> 10.244.1.2:8080 inside [127.0.0.0/8 10.244.1.0/24] -> 10.244.2.2:8080`,
	},
	{
		name: "dual-stack",
		objects: of(service("web", "type: NodePort, clusterIPs: [10.96.0.10, 'fd96::10'], externalTrafficPolicy: Local, externalIPs: ['2001:db8:e::1'], ports: [{port: 80, nodePort: 30080}]"), web(),
			slice("web-6", "web", "9090", "fd00:244:2::2 b")),
		want: `
			default/web
			tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://[fd96::10]:80 transparent -> [fd00:244:2::2]:9090
			tcp://[2001:db8:e::1]:80 transparent -> drop inside [::1/128 fd00:244:1::/64] -> [fd00:244:2::2]:9090
			tcp://0.0.0.0:30080 transparent -> 10.244.1.2:8080 inside [127.0.0.0/8 10.244.1.0/24] -> 10.244.1.2:8080 10.244.2.2:8080
			tcp://[::]:30080 transparent -> drop inside [::1/128 fd00:244:1::/64] -> [fd00:244:2::2]:9090`,
	},
	{
		name: "single-stack",
		objects: of(with(service("web", "type: LoadBalancer, clusterIP: 'fd96::10', externalIPs: [198.51.100.1], ports: [{port: 80, nodePort: 30080}]"),
			"status: {loadBalancer: {ingress: [{ip: 203.0.113.1}]}}"), web(), slice("web-6", "web", "8080", "fd00:244:2::2 b")),
		want: `
			default/web
			tcp://[fd96::10]:80 transparent -> [fd00:244:2::2]:8080
			tcp://[::]:30080 masked -> [fd00:244:2::2]:8080`,
		faults: `Service default/web: spec.externalIPs[0]: 198.51.100.1: the service has no IPv4`,
	},
	{
		name: "shared-ip",
		objects: of(
			with(service("a", "type: LoadBalancer, clusterIP: 10.96.0.10, loadBalancerSourceRanges: [192.0.2.0/24], ports: [{port: 80}]"), "status: {loadBalancer: {ingress: [{ip: 203.0.113.1}]}}"),
			with(service("b", "type: LoadBalancer, clusterIP: 10.96.0.11, ports: [{port: 80, protocol: UDP}, {name: tls, port: 443}]"), "status: {loadBalancer: {ingress: [{ip: 203.0.113.1}]}}"),
		),
		want: `
			default/a
			tcp://10.96.0.10:80 transparent -> refuse
			tcp://203.0.113.1:80 masked from [192.0.2.0/24] -> refuse
			default/b
			udp://10.96.0.11:80 transparent -> refuse
			udp://203.0.113.1:80 masked -> refuse
			default/b:tls
			tcp://10.96.0.11:443 transparent -> refuse
			tcp://203.0.113.1:443 masked -> refuse`,
	},
	{
		name: "one-frontend-two-services",
		objects: of(
			made(1, service("b", "type: NodePort, clusterIP: 10.96.0.11, externalIPs: [198.51.100.1], ports: [{name: http, port: 80, nodePort: 30080}]")),
			made(2, service("a", "type: NodePort, clusterIP: 10.96.0.10, externalIPs: [198.51.100.1], ports: [{port: 80, nodePort: 30080}]")),
			made(2, service("c", "type: NodePort, clusterIP: 10.96.0.12, externalIPs: [198.51.100.2], ports: [{port: 80, nodePort: 30081}]")),
			made(2, service("d", "type: NodePort, clusterIP: 10.96.0.13, ports: [{port: 80, nodePort: 30081}]")),
		),
		want: `
			default/a
			tcp://10.96.0.10:80 transparent -> refuse
			default/b:http
			tcp://10.96.0.11:80 transparent -> refuse
			tcp://198.51.100.1:80 masked -> refuse
			tcp://0.0.0.0:30080 masked -> refuse
			default/c
			tcp://10.96.0.12:80 transparent -> refuse
			tcp://198.51.100.2:80 masked -> refuse
			tcp://0.0.0.0:30081 masked -> refuse
			default/d
			tcp://10.96.0.13:80 transparent -> refuse`,
		faults: `
			Service default/a: spec.ports[0]: tcp://0.0.0.0:30080 is that of Service default/b, port "http"
			Service default/a: spec.ports[0]: tcp://198.51.100.1:80 is that of Service default/b, port "http"
			Service default/d: spec.ports[0]: tcp://0.0.0.0:30081 is that of Service default/c, port 80`,
	},
	{
		name: "annotations",
		objects: of(with(service("web", "type: NodePort, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}]"), `metadata: {annotations: {
			baton.dev/balance: maglev, baton.dev/client-address: proxy-v2, baton.dev/on-backend-removed: drain, baton.dev/offload: never, baton.dev/drain-timeout: 90s}}`)),
		want: `
			default/web balance=maglev client=proxy-v2 removed=drain drain=1m30s offload=never
			tcp://10.96.0.10:80 -> refuse
			tcp://0.0.0.0:30080 -> refuse`,
	},
	{
		name: "policy",
		objects: of(with(service("web", "clusterIP: 10.96.0.10, ports: [{port: 80}]"), `metadata: {annotations: {
			baton.dev/offload: always, baton.dev/policy: "{balance: random, offload: {mode: never}, clientAddress: proxy-v1, drainTimeout: 5s}"}}`),
			with(service("bad", "clusterIP: 10.96.0.11, ports: [{port: 80}]"), `metadata: {annotations: {
			baton.dev/policy: "{balance: fair, timeouts: {idle: 0s}, affinity: none, name: x}"}}`)),
		want: `
			default/bad
			tcp://10.96.0.11:80 transparent -> refuse
			default/web balance=random client=proxy-v1 drain=5s offload=always
			tcp://10.96.0.10:80 -> refuse`,
		faults: `Service default/bad: metadata.annotations[baton.dev/policy]: unknown key "affinity"; unknown key "name"; balance: "fair" is unknown: use round-robin, least-connections, random, source-hash, maglev; timeouts.idle: 0s is not longer than 0; the default is served`,
	},
}

func TestSemantics(t *testing.T) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t, r.options)
			w.set(r.objects...)
			w.take()
			compare(t, "served", w.lines(), r.want)
			compare(t, "faults", w.faultLines(), r.faults)
		})
	}
}
