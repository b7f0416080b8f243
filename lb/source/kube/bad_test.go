package kube

import (
	"strconv"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// What is wrong with one object is said by name, and everything else is served:
// the rest of the object, and the good Service that stands beside it in each case.
func TestBadObjects(t *testing.T) {
	good := of(service("good", "clusterIP: 10.96.0.1, ports: [{port: 443}]"), slice("good-1", "good", "6443", "192.0.2.9"))
	const goodLines = `
		default/good
		tcp://10.96.0.1:443 transparent -> 192.0.2.9:6443`
	const plain = "clusterIP: 10.96.0.10, ports: [{port: 80}]"
	const plainLines = `
		default/web
		tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.2:8080`
	edit := func(s *discoveryv1.EndpointSlice, change func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		change(s)
		return s
	}
	for _, c := range []struct {
		name         string
		objects      []any
		want, faults string
	}{
		{"an invalid cluster IP", of(service("web", "clusterIPs: [10.96.0.300, 'fd96::10'], ports: [{port: 80}]")), `
			default/web
			tcp://[fd96::10]:80 transparent -> refuse`,
			`Service default/web: spec.clusterIPs[0]: "10.96.0.300" is not an IP address`},
		{"no valid cluster IP", of(service("web", "clusterIP: here, externalIPs: [198.51.100.1], ports: [{port: 80}]")), "", `
			Service default/web: spec.clusterIP: "here" is not an IP address
			Service default/web: spec.externalIPs[0]: 198.51.100.1: the service has no IPv4`},
		{"two of a family", of(service("web", "clusterIPs: [10.96.0.10, 10.96.0.11], ports: [{port: 80}]")), `
			default/web
			tcp://10.96.0.10:80 transparent -> refuse`,
			`Service default/web: spec.clusterIPs[1]: 10.96.0.11 is the second of its family`},
		{"addresses that are not for clients", of(with(service("web", "clusterIP: 10.96.0.10, externalIPs: [0.0.0.0, 127.0.0.1, 224.0.0.1, 255.255.255.255], ports: [{port: 80}]"),
			"status: {loadBalancer: {ingress: [{ip: '::1'}, {ip: 'fe80::1'}, {ip: x}]}}"), web()), plainLines, `
			Service default/web: spec.externalIPs[0]: 0.0.0.0 is not an address for clients of the network
			Service default/web: spec.externalIPs[1]: 127.0.0.1 is not an address for clients of the network
			Service default/web: spec.externalIPs[2]: 224.0.0.1 is not an address for clients of the network
			Service default/web: spec.externalIPs[3]: 255.255.255.255 is not an address for clients of the network
			Service default/web: status.loadBalancer.ingress[0].ip: ::1 is not an address for clients of the network
			Service default/web: status.loadBalancer.ingress[1].ip: fe80::1 is of one link only, which is not supported
			Service default/web: status.loadBalancer.ingress[2].ip: "x" is not an IP address`},
		{"ports", of(service("web", `clusterIP: 10.96.0.10, type: NodePort, ports: [{port: 80, nodePort: 70000}, {name: a, port: 0}, {name: b, port: 65536},
			{name: c, port: 1, protocol: ICMP}, {name: 'd:1', port: 2}, {name: '', port: 3}]`), web()), plainLines, `
			Service default/web: spec.ports[0].nodePort: 70000 is no port
			Service default/web: spec.ports[1].port: 0 is no port
			Service default/web: spec.ports[2].port: 65536 is no port
			Service default/web: spec.ports[3].protocol: "ICMP" is unknown: use TCP, UDP or SCTP
			Service default/web: spec.ports[4].name: "d:1" is no name of a port
			Service default/web: spec.ports[5].name: "" is the name of spec.ports[0] already`},
		{"one port number twice", of(service("web", "clusterIP: 10.96.0.10, ports: [{name: a, port: 80}, {name: b, port: 80}]")), `
			default/web:a
			tcp://10.96.0.10:80 transparent -> refuse`,
			`Service default/web: spec.ports[1]: tcp://10.96.0.10:80 is that of port "a" already`},
		{"a name", of(service("we:b", plain)), "", `Service default/we:b: metadata.name: "we:b" in "default" is no name of a Service`},
		{"a name that is an address", of(service("10.0.0.1", "clusterIP: 10.96.0.10, ports: [{name: '80', port: 80}, {name: http, port: 81}]")), `
			default/10.0.0.1:http
			tcp://10.96.0.10:81 transparent -> refuse`,
			"Service default/10.0.0.1: spec.ports[0]: port \"80\" is not served: \"10.0.0.1:80\" looks like IP:PORT, which `baton drain` could not tell from a backend"},
		{"words", of(service("web", plain+", sessionAffinity: Cookie, internalTrafficPolicy: Near, externalTrafficPolicy: Far"), web()), plainLines, `
			Service default/web: spec.externalTrafficPolicy: "Far" is unknown: use Cluster or Local; served as Cluster
			Service default/web: spec.internalTrafficPolicy: "Near" is unknown: use Cluster or Local; served as Cluster
			Service default/web: spec.sessionAffinity: "Cookie" is unknown: use None or ClientIP; served as None`},
		{"affinity for too long", of(service("web", plain+", sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}")), `
			default/web affinity=client-ip/3h0m0s
			tcp://10.96.0.10:80 transparent -> refuse`,
			`Service default/web: spec.sessionAffinityConfig.clientIP.timeoutSeconds: 86401 is not between 1 and 86400; served with 3h0m0s`},
		{"a health check port", of(service("web", plain+", type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: -1"), web()), plainLines,
			`Service default/web: spec.healthCheckNodePort: -1 is no port`},
		{"source ranges", of(with(service("web", plain+", loadBalancerSourceRanges: [192.0.2.0, 192.0.2.0/33]"), "status: {loadBalancer: {ingress: [{ip: 203.0.113.1}]}}"), web()), plainLines, `
			Service default/web: spec.loadBalancerSourceRanges[0]: "192.0.2.0" is not IP/BITS, as 192.0.2.0/24; it lets nobody in
			Service default/web: spec.loadBalancerSourceRanges[1]: "192.0.2.0/33" is not IP/BITS, as 192.0.2.0/24; it lets nobody in`},
		{"annotations", of(with(service("web", plain), `metadata: {annotations: {baton.dev/balance: best, baton.dev/client-address: real, baton.dev/on-backend-removed: weep,
			baton.dev/offload: 'yes', baton.dev/drain-timeout: -1s, baton.dev/colour: red}}`), web()), plainLines, `
			Service default/web: metadata.annotations[baton.dev/balance]: "best" is unknown: use round-robin, least-connections, random, source-hash, maglev; the default is served
			Service default/web: metadata.annotations[baton.dev/client-address]: "real" is unknown: use masked, transparent, proxy-v1, proxy-v2; the default is served
			Service default/web: metadata.annotations[baton.dev/colour]: is unknown: there are baton.dev/balance, baton.dev/client-address, baton.dev/on-backend-removed, baton.dev/offload, baton.dev/drain-timeout, baton.dev/policy, baton.dev/mode
			Service default/web: metadata.annotations[baton.dev/drain-timeout]: "-1s" is no duration, as 30s; the default is served
			Service default/web: metadata.annotations[baton.dev/offload]: "yes" is unknown: use auto, never, always; the default is served
			Service default/web: metadata.annotations[baton.dev/on-backend-removed]: "weep" is unknown: use keep, drain, reset; the default is served`},
		{"PROXY v1 for UDP", of(with(service("web", "clusterIP: 10.96.0.10, ports: [{port: 80}, {name: u, port: 80, protocol: UDP}]"), "metadata: {annotations: {baton.dev/client-address: proxy-v1}}")), `
			default/web client=proxy-v1
			tcp://10.96.0.10:80 -> refuse
			default/web:u
			udp://10.96.0.10:80 transparent -> refuse`,
			`Service default/web: metadata.annotations[baton.dev/client-address]: proxy-v1 is for TCP only; port "u" is served without`},

		{"endpoints", of(service("web", plain), web(), slice("web-2", "web", "8080", "10.244.1.300 a", "127.0.0.1 a", "169.254.1.1 a", "224.0.0.1 a", "0.0.0.0 a", "255.255.255.255 a", "10.244.2.2 b")), plainLines, `
			EndpointSlice default/web-2: endpoints[0].addresses: "10.244.1.300" is not an IP address
			EndpointSlice default/web-2: endpoints[1].addresses: 127.0.0.1 cannot be the address of an endpoint
			EndpointSlice default/web-2: endpoints[2].addresses: 169.254.1.1 cannot be the address of an endpoint
			EndpointSlice default/web-2: endpoints[3].addresses: 224.0.0.1 cannot be the address of an endpoint
			EndpointSlice default/web-2: endpoints[4].addresses: 0.0.0.0 cannot be the address of an endpoint
			EndpointSlice default/web-2: endpoints[5].addresses: 255.255.255.255 cannot be the address of an endpoint`},
		{"an endpoint of another family", of(service("web", plain), web(), edit(slice("web-2", "web", "8080", "10.244.2.3 b", "fd00::1 b"), func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses = nil
		})), plainLines, `EndpointSlice default/web-2: endpoints[0].addresses: there is none`},
		{"IPv6 in an IPv4 slice", of(service("web", plain), web(), edit(slice("web-2", "web", "8080", "fd00::1 b", "fe80::1%eth0 b"), func(s *discoveryv1.EndpointSlice) {
			s.AddressType = discoveryv1.AddressTypeIPv4
		})), plainLines, `
			EndpointSlice default/web-2: endpoints[0].addresses: fd00::1 in a slice of IPv4 addresses
			EndpointSlice default/web-2: endpoints[1].addresses: fe80::1%eth0 in a slice of IPv4 addresses`},
		{"an address type", of(service("web", plain), web(), edit(slice("web-2", "web", "8080", "10.244.2.3 b"), func(s *discoveryv1.EndpointSlice) {
			s.AddressType = "IPX"
		})), plainLines, `EndpointSlice default/web-2: addressType: "IPX" is unknown: use IPv4, IPv6 or FQDN`},
		{"ports of a slice", of(service("web", plain), web(), slice("web-2", "web", "0, x 1 ICMP", "10.244.2.3 b")), plainLines, `
			EndpointSlice default/web-2: ports[0].port: 0 is no port
			EndpointSlice default/web-2: ports[1].protocol: "ICMP" is unknown: use TCP, UDP or SCTP`},
		{"names for addresses, and no port yet", of(service("web", plain), web(), edit(slice("web-2", "web", "8080", "10.244.2.3 b"), func(s *discoveryv1.EndpointSlice) {
			s.AddressType = discoveryv1.AddressTypeFQDN
		}), edit(slice("web-3", "web", "8080", "10.244.2.4 b"), func(s *discoveryv1.EndpointSlice) {
			s.Ports[0].Port = nil
		})), plainLines, ""},
		{"a slice of an unknown Service, and one of none", of(slice("lost-1", "lost", "8080", "10.244.2.3 b"), edit(slice("own", "", "8080", "10.244.2.4 b"), func(s *discoveryv1.EndpointSlice) {
			s.Labels = nil
		})), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.set(good...)
			w.set(c.objects...)
			w.take()
			want := goodLines + c.want
			if strings.Contains(c.want, "default/10.0") { // sorts first
				want = c.want + goodLines
			}
			compare(t, "served", w.lines(), want)
			compare(t, "faults", w.faultLines(), c.faults)
		})
	}
}

// A slice beyond the API's limit is reported, and all of it is served; of many
// faults the first are told, and how many more there are.
func TestHugeSlice(t *testing.T) {
	w := newWorld(t, Options{})
	s := slice("web-1", "web", "8080", "10.244.1.2 a")
	for i := range 1200 {
		e := endpoint([]string{"10.245." + strconv.Itoa(i/200) + "." + strconv.Itoa(i%200)})
		if i < 50 {
			e.Addresses[0] = "none"
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	w.set(service("web", "clusterIP: 10.96.0.10, ports: [{port: 80}]"), s)
	w.take()
	svc, _ := w.store.Snapshot().Service("default/web")
	if len(svc.Pool) != 1151 {
		t.Errorf("%d backends, want 1151", len(svc.Pool))
	}
	lines := w.faultLines()
	if len(lines) != maxFaults+1 {
		t.Fatalf("%d faults: %q", len(lines), lines)
	}
	all := strings.Join(lines, "\n")
	for _, part := range []string{"endpoints: there are 1201, the API allows 1000; all are served", "there are 41 more faults"} {
		if !strings.Contains(all, part) {
			t.Errorf("nobody says %q:\n%s", part, all)
		}
	}
}
