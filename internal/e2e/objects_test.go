package e2e

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// shop is the namespace of the objects.
const shop = "shop/"

// called is what a service of the world is called: objects have a namespace.
func (w world) called(name string) string {
	if w.objects {
		return shop + name
	}
	return name
}

// state is how a backend of a state in the file is shown: an endpoint that takes no new
// flows is on its way out.
func (w world) state(inFile string) string {
	if w.objects && inFile == "drain" {
		return "terminating"
	}
	return inFile
}

// asObjects marks services that are to be served through objects of Kubernetes: see
// world.service.
const asObjects = "# as objects\n"

// objectsFile is what an instance with such services serves.
func (b *baton) objectsFile() string { return filepath.Join(b.dir, "objects.yaml") }

// served is a service of a file, as far as the translation to objects looks at it.
type served struct {
	Name      string
	Frontends []string
	Backends  []yaml.Node
	Affinity  struct{ By, Timeout string }
	Policy    map[string]yaml.Node `yaml:",inline"`
}

// servedBackend is one of its backends.
type servedBackend struct {
	Address netip.AddrPort
	State   string
	Weight  *int
}

// toObjects writes services of a file as the Services and EndpointSlices that say the
// same: an address of a frontend is a cluster IP, a backend is an endpoint, what
// Kubernetes has no word for is the annotation baton.dev/policy.
func toObjects(t *testing.T, services string) string {
	t.Helper()
	var f struct{ Services []served }
	if err := yaml.Unmarshal([]byte(services), &f); err != nil {
		t.Fatalf("%v in\n%s", err, services)
	}
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	for i, s := range f.Services {
		s.writeService(t, &b, i)
		s.writeSlices(t, &b)
	}
	return b.String()
}

func (s *served) writeService(t *testing.T, b *strings.Builder, i int) {
	ips := map[string]bool{}
	for _, fe := range s.Frontends {
		if _, at := s.split(fe); !at.Addr().IsUnspecified() {
			ips[at.Addr().String()] = true
		}
	}
	ports := s.ports(func(at netip.AddrPort) uint16 { return at.Port() })
	all := slices.Sorted(maps.Keys(ips))
	fmt.Fprintf(b, "- apiVersion: v1\n  kind: Service\n  metadata: {name: %s, namespace: shop, uid: \"%d\", creationTimestamp: \"2026-01-01T00:00:%02dZ\"%s}\n", s.Name, i, i, s.annotations(t))
	fmt.Fprintf(b, "  spec:\n    type: NodePort\n    clusterIP: %q\n    clusterIPs: [%q]\n    ipFamilies: [%s]\n    ports: [%s]\n", all[0], strings.Join(all, `", "`), familiesOf(all), strings.Join(ports, ", "))
	if s.Affinity.By != "" {
		timeout := 3 * time.Hour
		if s.Affinity.Timeout != "" {
			timeout, _ = time.ParseDuration(s.Affinity.Timeout)
		}
		fmt.Fprintf(b, "    sessionAffinity: ClientIP\n    sessionAffinityConfig: {clientIP: {timeoutSeconds: %d}}\n", max(1, int(timeout.Seconds())))
	}
}

func (s *served) split(frontend string) (proto string, at netip.AddrPort) {
	proto, addr, _ := strings.Cut(frontend, "://")
	return strings.ToUpper(proto), netip.MustParseAddrPort(addr)
}

// ports lists a port for each port and protocol of the frontends. The only one needs no
// name. A frontend at all addresses is the node port of the one before it.
func (s *served) ports(number func(frontend netip.AddrPort) uint16) (list []string) {
	names := map[string]bool{}
	for _, fe := range s.Frontends {
		proto, at := s.split(fe)
		if at.Addr().IsUnspecified() {
			last := &list[len(list)-1]
			*last = fmt.Sprintf("%s, nodePort: %d}", strings.TrimSuffix(*last, "}"), at.Port())
			continue
		}
		name := fmt.Sprintf("%s%d", strings.ToLower(proto), at.Port())
		if names[name] {
			continue
		}
		names[name] = true
		list = append(list, fmt.Sprintf("{name: %s, protocol: %s, port: %d}", name, proto, number(at)))
	}
	if len(list) == 1 {
		_, rest, _ := strings.Cut(list[0], ", ")
		list[0] = "{" + rest
	}
	return list
}

func familiesOf(addrs []string) string {
	list := make([]string, len(addrs))
	for i, a := range addrs {
		list[i] = familyOf(a)
	}
	return strings.Join(list, ", ")
}

func familyOf(addr string) string {
	if netip.MustParseAddr(addr).Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// annotations is everything that a Service has no field for. Files say masked where they
// say nothing, cluster IPs keep the client's address.
func (s *served) annotations(t *testing.T) string {
	policy := s.Policy
	if policy == nil {
		policy = map[string]yaml.Node{}
	}
	if _, ok := policy["clientAddress"]; !ok {
		policy["clientAddress"] = yaml.Node{Kind: yaml.ScalarNode, Value: "masked"}
	}
	text, err := yaml.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(", annotations: {baton.dev/policy: %q}", text)
}

// writeSlices writes a slice for each port that backends have, and family.
func (s *served) writeSlices(t *testing.T, b *strings.Builder) {
	type kind struct {
		family string
		port   uint16
	}
	endpoints := map[kind][]string{}
	for _, n := range s.Backends {
		be := servedBackend{State: "ready"}
		if n.Kind == yaml.ScalarNode {
			be.Address = netip.MustParseAddrPort(n.Value)
		} else if err := n.Decode(&be); err != nil {
			t.Fatal(err)
		}
		if be.State == "down" {
			continue // Kubernetes takes what is down out of the list
		}
		k := kind{familyOf(be.Address.Addr().String()), be.Address.Port()}
		endpoints[k] = append(endpoints[k], fmt.Sprintf("{addresses: [%q], nodeName: b, conditions: %s}", be.Address.Addr(), be.conditions()))
	}
	n := 0
	for k, list := range endpoints {
		n++
		ports := s.ports(func(netip.AddrPort) uint16 { return k.port })
		fmt.Fprintf(b, "- apiVersion: discovery.k8s.io/v1\n  kind: EndpointSlice\n  metadata: {name: %s-%s-%d, namespace: shop, labels: {kubernetes.io/service-name: %s}}\n", s.Name, strings.ToLower(k.family), k.port, s.Name)
		fmt.Fprintf(b, "  addressType: %s\n  ports: [%s]\n  endpoints: [%s]\n", k.family, strings.Join(ports, ", "), strings.Join(list, ", "))
	}
}

// conditions of an endpoint: one that takes no new flows and keeps those that it has is
// on its way out.
func (be *servedBackend) conditions() string {
	switch {
	case be.Weight != nil && *be.Weight == 0:
		return "{ready: false, serving: false, terminating: false}"
	case be.State == "drain":
		return "{ready: false, serving: true, terminating: true}"
	}
	return "{ready: true, serving: true, terminating: false}"
}

// K3: a pod that is the only endpoint of its Service reaches itself through it. The
// address of a client is to be kept, and cannot be: the answer would never come here.
func TestHairpin(t *testing.T) {
	everyPath(t, 1, func(t *testing.T, w world) {
		pod := w.Backends[0]
		pod.Serve(8080, testnet.Named(pod.Name()))
		serveUDP(t, pod, w.backend(0), named(pod.Name()))
		const keep = "clientAddress: transparent"
		dns := w
		dns.vip = netip.AddrPortFrom(w.vip.Addr(), 53)
		b := start(t, w.Balancer, w.service(nil, keep)+dns.another("dns", "udp", 0, keep))
		name, err := pod.AskName(w.vip)
		if name != pod.Name() || err != nil {
			t.Errorf("over TCP: got %q, %v", name, err)
		}
		c, err := pod.Dial("udp", dns.vip)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got, err := exchange(c, []byte("who")); !strings.HasPrefix(string(got), pod.Name()) || err != nil {
			t.Errorf("over UDP: got %q, %v", got, err)
		}
		b.carriedBy(w.path(), netip.MustParseAddrPort(c.LocalAddr().String()))
		conn := w.dialFrom(t, pod)
		b.carriedBy(w.path(), netip.MustParseAddrPort(conn.LocalAddr().String()))
		for _, v := range b.flows() {
			if v.ClientAddress != flow.ClientMasked {
				t.Errorf("the flow shows its client %s: %+v", v.ClientAddress, v)
			}
		}
	})
}
