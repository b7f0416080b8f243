package kube

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// Service is what is wanted of a Service. It never changes.
type Service struct {
	metav1.ObjectMeta
	Ports []Port

	key         string       // "namespace/name"
	clusterIPs  []netip.Addr // one of each family at most
	externalIPs []netip.Addr
	lbIPs       []netip.Addr
	ranges      []netip.Prefix // clients of lbIPs; empty = all

	internalLocal       bool
	externalLocal       bool
	healthCheckNodePort uint16

	policies policies
	faults   []Fault
}

// Port is one port of a Service that can be served.
type Port struct {
	Service string // name of the service that it becomes

	name     string // in the slices
	index    int    // in spec.ports
	proto    flow.Proto
	port     uint16
	nodePort uint16 // 0 = none
}

// ReadService strips a Service. It returns nil for one that is not for us:
// headless, an external name, or of another proxy. What is wrong with it the
// Translator will report too.
func ReadService(s *corev1.Service) (*Service, []Fault) {
	if forOthers(&s.ObjectMeta) || s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, nil
	}
	if s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.ClusterIP == "" && len(s.Spec.ClusterIPs) == 0 {
		return nil, nil
	}
	r := serviceReader{
		from:    s,
		Service: &Service{ObjectMeta: trimmed(&s.ObjectMeta), key: keyOf(s.Namespace, s.Name)},
	}
	r.faults = newFaults(kindService, &s.ObjectMeta, r.key)
	r.readAddresses()
	r.readRanges()
	r.readTraffic()
	r.policies = readPolicies(s, &r.faults)
	r.readPorts()
	r.Service.faults = r.faults.all()
	return r.Service, r.Service.faults
}

// serviceReader makes a Service out of from.
type serviceReader struct {
	*Service
	from   *corev1.Service
	faults faults
}

func (r *serviceReader) readAddresses() {
	spec := &r.from.Spec
	ips, field := spec.ClusterIPs, "spec.clusterIPs[%d]"
	if len(ips) == 0 {
		ips, field = []string{spec.ClusterIP}, "spec.clusterIP"
	}
	for i, s := range ips {
		at := field
		if len(spec.ClusterIPs) > 0 {
			at = fmt.Sprintf(field, i)
		}
		a, ok := r.address(at, s)
		if ok && r.has(lb.FamilyOf(a)) {
			r.faults.add(at, "%s is the second of its family", a)
			continue
		}
		if ok {
			r.clusterIPs = append(r.clusterIPs, a)
		}
	}
	for i, s := range spec.ExternalIPs {
		at := fmt.Sprintf("spec.externalIPs[%d]", i)
		a, ok := r.address(at, s)
		if !ok {
			continue
		}
		if !r.has(lb.FamilyOf(a)) {
			r.faults.add(at, "%s: the service has no %s", a, lb.FamilyOf(a))
			continue
		}
		r.externalIPs = appendNew(r.externalIPs, a)
	}
	for i, in := range r.from.Status.LoadBalancer.Ingress {
		if in.IP == "" || in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP {
			continue // a name, or a balancer that wants to see its traffic itself
		}
		a, ok := r.address(fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), in.IP)
		// One of a family that the service has not is the balancer's own affair.
		if ok && r.has(lb.FamilyOf(a)) {
			r.lbIPs = appendNew(r.lbIPs, a)
		}
	}
}

// address reads one that clients are served at.
func (r *serviceReader) address(field, s string) (netip.Addr, bool) {
	a, err := parseAddr(s)
	if err != nil {
		r.faults.add(field, "%s", err)
		return a, false
	}
	if p := frontendProblem(a); p != "" {
		r.faults.add(field, "%s", p)
		return a, false
	}
	return a, true
}

// has reports whether the service has a cluster IP of a family. It is served in
// these families only.
func (s *Service) has(f lb.Family) bool {
	return slices.ContainsFunc(s.clusterIPs, func(a netip.Addr) bool { return lb.FamilyOf(a) == f })
}

func appendNew(list []netip.Addr, a netip.Addr) []netip.Addr {
	if slices.Contains(list, a) {
		return list
	}
	return append(list, a)
}

// readRanges: a range that cannot be read lets nobody in, and must not open the
// service to all when it is the only one.
func (r *serviceReader) readRanges() {
	for i, s := range r.from.Spec.LoadBalancerSourceRanges {
		p, err := parsePrefix(s)
		if err != nil {
			r.faults.add(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), "%s; it lets nobody in", err)
			continue
		}
		r.ranges = append(r.ranges, p)
	}
	if len(r.ranges) == 0 && len(r.from.Spec.LoadBalancerSourceRanges) > 0 {
		r.lbIPs = nil
	}
}

func (r *serviceReader) readTraffic() {
	spec := &r.from.Spec
	if p := spec.InternalTrafficPolicy; p != nil {
		switch *p {
		case corev1.ServiceInternalTrafficPolicyLocal:
			r.internalLocal = true
		case corev1.ServiceInternalTrafficPolicyCluster:
		default:
			r.faults.add("spec.internalTrafficPolicy", "%q is unknown: use Cluster or Local; served as Cluster", *p)
		}
	}
	switch spec.ExternalTrafficPolicy {
	case corev1.ServiceExternalTrafficPolicyLocal:
		r.externalLocal = true
	case corev1.ServiceExternalTrafficPolicyCluster, "":
	default:
		r.faults.add("spec.externalTrafficPolicy", "%q is unknown: use Cluster or Local; served as Cluster", spec.ExternalTrafficPolicy)
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer || !r.externalLocal {
		return
	}
	port, ok := portOf(spec.HealthCheckNodePort)
	if !ok && spec.HealthCheckNodePort != 0 {
		r.faults.add("spec.healthCheckNodePort", "%d is no port", spec.HealthCheckNodePort)
		return
	}
	r.healthCheckNodePort = port
}

func (r *serviceReader) readPorts() {
	if strings.ContainsAny(r.Namespace+r.Name, ":/ ") {
		r.faults.add("metadata.name", "%q in %q is no name of a Service", r.Name, r.Namespace)
		return
	}
	names := make(map[string]int, len(r.from.Spec.Ports))
	for i := range r.from.Spec.Ports {
		p, at := &r.from.Spec.Ports[i], fmt.Sprintf("spec.ports[%d]", i)
		if first, twice := names[p.Name]; twice {
			r.faults.add(at+".name", "%q is the name of spec.ports[%d] already", p.Name, first)
			continue
		}
		names[p.Name] = i
		if strings.ContainsAny(p.Name, ":/ ") {
			r.faults.add(at+".name", "%q is no name of a port", p.Name)
			continue
		}
		proto, ok := protoOf(p.Protocol)
		if !ok {
			r.faults.add(at+".protocol", "%q is unknown: use TCP, UDP or SCTP", p.Protocol)
			continue
		}
		port, ok := portOf(p.Port)
		if !ok {
			r.faults.add(at+".port", "%d is no port", p.Port)
			continue
		}
		nodePort, ok := portOf(p.NodePort)
		if !ok && p.NodePort != 0 {
			r.faults.add(at+".nodePort", "%d is no port", p.NodePort)
			nodePort = 0
		}
		if proto != flow.TCP && r.policies.client == lb.ProxyV1 {
			r.faults.add(annotationPath(annotationClient), "proxy-v1 is for TCP only; port %q is served without", p.Name)
		}
		r.Ports = append(r.Ports, Port{r.portKey(p.Name), p.Name, i, proto, port, nodePort})
	}
}

// portKey names the service that a port becomes.
func (s *Service) portKey(name string) string {
	if name == "" {
		return s.key
	}
	return s.key + ":" + name
}

// compare orders services by age: of two that want the same frontend, the older
// has it.
func (s *Service) compare(o *Service) int {
	if c := s.CreationTimestamp.Time.Compare(o.CreationTimestamp.Time); c != 0 {
		return c
	}
	return cmp.Compare(s.key, o.key)
}

// maxAffinity is the longest session affinity that the API allows, in seconds.
const maxAffinity = 86400

// affinityOf is the session affinity of a Service.
func affinityOf(s *corev1.Service, f *faults) lb.Affinity {
	switch s.Spec.SessionAffinity {
	case corev1.ServiceAffinityClientIP:
	case corev1.ServiceAffinityNone, "":
		return lb.Affinity{}
	default:
		f.add("spec.sessionAffinity", "%q is unknown: use None or ClientIP; served as None", s.Spec.SessionAffinity)
		return lb.Affinity{}
	}
	a := lb.Affinity{By: lb.ByClientIP, Timeout: lb.DefaultAffinityTimeout}
	c := s.Spec.SessionAffinityConfig
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return a
	}
	seconds := *c.ClientIP.TimeoutSeconds
	if seconds <= 0 || seconds > maxAffinity {
		f.add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "%d is not between 1 and %d; served with %s",
			seconds, maxAffinity, a.Timeout)
		return a
	}
	a.Timeout = time.Duration(seconds) * time.Second
	return a
}
