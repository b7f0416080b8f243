package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// Slice is what is wanted of an EndpointSlice. It never changes.
type Slice struct {
	metav1.ObjectMeta
	Service   string // "namespace/name" of its Service
	Ports     []SlicePort
	Endpoints []Endpoint
	Trigger   time.Time // of what led to it; zero = unknown

	family lb.Family
	hints  []hint // that the endpoints point at
	faults []Fault
}

// SlicePort is one port of all endpoints of a slice.
type SlicePort struct {
	name  string
	proto flow.Proto
	port  uint16
}

// Endpoint is one endpoint of a slice. There may be half a million: names are
// shared, and hints stand in the slice.
type Endpoint struct {
	address     netip.Addr
	node, zone  unique.Handle[string]
	hint        int32 // position in Slice.hints plus 1; 0 = none
	ready       bool
	serving     bool
	terminating bool
}

// usable reports whether anything would be sent there if there were nothing
// better.
func (e *Endpoint) usable() bool { return e.ready || e.serving && e.terminating }

// hint says which nodes an endpoint is meant for.
type hint struct{ zones, nodes []string }

func (h hint) equal(o hint) bool {
	return slices.Equal(h.zones, o.zones) && slices.Equal(h.nodes, o.nodes)
}

// maxEndpoints is the API's limit for a slice.
const maxEndpoints = 1000

// ReadSlice strips a slice. It returns nil for one that is not for us: of no
// Service, a headless one, one of another proxy, or with names for addresses.
// What is wrong with it the Translator will report too.
func ReadSlice(s *discoveryv1.EndpointSlice) (*Slice, []Fault) {
	service := s.Labels[discoveryv1.LabelServiceName]
	if service == "" || forOthers(&s.ObjectMeta) || s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil, nil
	}
	r := sliceReader{Slice: &Slice{ObjectMeta: trimmed(&s.ObjectMeta), Service: keyOf(s.Namespace, service)}}
	r.faults = newFaults(kindSlice, &s.ObjectMeta, r.Service)
	switch s.AddressType {
	case discoveryv1.AddressTypeIPv4:
		r.family = lb.IPv4
	case discoveryv1.AddressTypeIPv6:
		r.family = lb.IPv6
	default:
		r.faults.add("addressType", "%q is unknown: use IPv4, IPv6 or FQDN", s.AddressType)
	}
	if r.family != lb.AnyFamily {
		r.readPorts(s)
		r.readEndpoints(s)
	}
	if v, ok := s.Annotations[corev1.EndpointsLastChangeTriggerTime]; ok {
		r.Trigger, _ = time.Parse(time.RFC3339Nano, v) // for figures only
	}
	r.Slice.faults = r.faults.all()
	return r.Slice, r.Slice.faults
}

// sliceReader makes a Slice.
type sliceReader struct {
	*Slice
	faults faults
	known  map[string]int32 // of hints
}

func (r *sliceReader) readPorts(s *discoveryv1.EndpointSlice) {
	r.Ports = make([]SlicePort, 0, len(s.Ports))
	for i := range s.Ports {
		p := SlicePort{}
		if name := s.Ports[i].Name; name != nil {
			p.name = unique.Make(*name).Value()
		}
		proto, ok := flow.TCP, true
		if s.Ports[i].Protocol != nil {
			proto, ok = protoOf(*s.Ports[i].Protocol)
		}
		if !ok {
			r.faults.add(fmt.Sprintf("ports[%d].protocol", i), "%q is unknown: use TCP, UDP or SCTP", *s.Ports[i].Protocol)
			continue
		}
		p.proto = proto
		if s.Ports[i].Port == nil {
			continue // nobody listens there yet
		}
		if p.port, ok = portOf(*s.Ports[i].Port); !ok {
			r.faults.add(fmt.Sprintf("ports[%d].port", i), "%d is no port", *s.Ports[i].Port)
			continue
		}
		r.Ports = append(r.Ports, p)
	}
}

func (r *sliceReader) readEndpoints(s *discoveryv1.EndpointSlice) {
	if n := len(s.Endpoints); n > maxEndpoints {
		r.faults.add("endpoints", "there are %d, the API allows %d; all are served", n, maxEndpoints)
	}
	r.Endpoints = make([]Endpoint, 0, len(s.Endpoints))
	for i := range s.Endpoints {
		from := &s.Endpoints[i]
		a, problem := r.address(from.Addresses)
		if problem != "" {
			r.faults.add(fmt.Sprintf("endpoints[%d].addresses", i), "%s", problem)
			continue
		}
		is := func(p *bool, otherwise bool) bool {
			if p == nil {
				return otherwise
			}
			return *p
		}
		e := Endpoint{
			address:     a,
			node:        shared(from.NodeName),
			zone:        shared(from.Zone),
			hint:        r.hint(from.Hints),
			ready:       is(from.Conditions.Ready, true),
			terminating: is(from.Conditions.Terminating, false),
		}
		e.serving = is(from.Conditions.Serving, e.ready)
		r.Endpoints = append(r.Endpoints, e)
	}
}

// address reads the first of an endpoint's addresses: the API says that the
// others mean nothing.
func (r *sliceReader) address(list []string) (a netip.Addr, problem string) {
	if len(list) == 0 {
		return a, "there is none"
	}
	a, err := parseAddr(list[0])
	switch {
	case err != nil:
		return a, err.Error()
	case lb.FamilyOf(a) != r.family:
		return a, fmt.Sprintf("%s in a slice of %s addresses", a, r.family)
	}
	return a, endpointProblem(a)
}

// hint returns the reference to an endpoint's hints.
func (r *sliceReader) hint(from *discoveryv1.EndpointHints) int32 {
	if from == nil || len(from.ForZones) == 0 && len(from.ForNodes) == 0 {
		return 0
	}
	var h hint
	var key strings.Builder
	for _, z := range from.ForZones {
		h.zones = append(h.zones, z.Name)
		key.WriteString(z.Name + "\x00")
	}
	key.WriteByte(1)
	for _, n := range from.ForNodes {
		h.nodes = append(h.nodes, n.Name)
		key.WriteString(n.Name + "\x00")
	}
	if at, ok := r.known[key.String()]; ok {
		return at
	}
	if r.known == nil {
		r.known = make(map[string]int32)
	}
	r.hints = append(r.hints, h)
	at := int32(len(r.hints))
	r.known[key.String()] = at
	return at
}

var nothing = unique.Make("")

// shared returns the one copy of a name that may be missing.
func shared(s *string) unique.Handle[string] {
	if s == nil {
		return nothing
	}
	return unique.Make(*s)
}

// says reports whether both say the same of endpoints.
func (s *Slice) says(o *Slice) bool {
	return s.Service == o.Service && s.family == o.family &&
		slices.Equal(s.Ports, o.Ports) &&
		slices.Equal(s.Endpoints, o.Endpoints) &&
		slices.EqualFunc(s.hints, o.hints, hint.equal)
}
