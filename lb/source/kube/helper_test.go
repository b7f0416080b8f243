package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/store"
)

// readYAML reads a manifest, strictly.
func readYAML[T any](text string) *T {
	v := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), v); err != nil {
		panic(fmt.Sprintf("%v in\n%s", err, text))
	}
	return v
}

// service is one of namespace default, by the inside of its spec in YAML's flow
// form. Each is a second younger than the one before it in the alphabet.
func service(name, spec string) *corev1.Service {
	s := readYAML[corev1.Service]("spec: {" + spec + "}")
	s.Namespace, s.Name, s.UID = "default", name, types.UID("uid-of-"+name)
	s.CreationTimestamp = metav1.Unix(int64(name[0]), 0)
	return s
}

// with adds labels, annotations and a status in flow form to a Service.
func with(s *corev1.Service, text string) *corev1.Service {
	more := readYAML[corev1.Service]("{" + text + "}")
	s.Labels, s.Annotations, s.Status = more.Labels, more.Annotations, more.Status
	return s
}

// made gives a Service an age.
func made(at int64, s *corev1.Service) *corev1.Service {
	s.CreationTimestamp = metav1.Unix(at, 0)
	return s
}

// labelled adds a label to a slice.
func labelled(s *discoveryv1.EndpointSlice, name, value string) *discoveryv1.EndpointSlice {
	s.Labels[name] = value
	return s
}

// slice is one of a Service in namespace default. Ports are written "8080",
// "http 8080", "dns 53 UDP"; endpoints "10.244.1.2 a" with the node and what is
// not as usual: terminating, gone (terminating, not serving), notready,
// zone=Z (hint), node=N (hint).
func slice(name, service, ports string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	s.Namespace, s.Name, s.UID = "default", name, types.UID("uid-of-"+name)
	s.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	for p := range strings.SplitSeq(ports, ",") {
		s.Ports = append(s.Ports, slicePort(strings.Fields(p)))
	}
	for _, text := range endpoints {
		e := endpoint(strings.Fields(text))
		if strings.Contains(e.Addresses[0], ":") {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func slicePort(words []string) (p discoveryv1.EndpointPort) {
	name, proto := "", corev1.ProtocolTCP
	if len(words) > 1 {
		name = words[0]
		words = words[1:]
	}
	if len(words) > 1 {
		proto = corev1.Protocol(words[1])
	}
	var port int32
	_, _ = fmt.Sscan(words[0], &port)
	return discoveryv1.EndpointPort{Name: &name, Protocol: &proto, Port: &port}
}

func endpoint(words []string) (e discoveryv1.Endpoint) {
	is, not := true, false
	e.Addresses = words[:1]
	e.Conditions = discoveryv1.EndpointConditions{Ready: &is, Serving: &is, Terminating: &not}
	e.Hints = &discoveryv1.EndpointHints{}
	for _, w := range words[1:] {
		kind, value, _ := strings.Cut(w, "=")
		switch kind {
		case "terminating":
			e.Conditions.Ready, e.Conditions.Terminating = &not, &is
		case "gone":
			e.Conditions.Ready, e.Conditions.Serving, e.Conditions.Terminating = &not, &not, &is
		case "notready":
			e.Conditions.Ready, e.Conditions.Serving = &not, &not
		case "zone":
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: value})
		case "node":
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: value})
		default:
			e.NodeName = &w
		}
	}
	return e
}

// here is node a in zone z1, with addresses and pods of both families.
func here() *corev1.Node {
	return readYAML[corev1.Node](`
metadata: {name: a, labels: {topology.kubernetes.io/zone: z1}}
spec: {podCIDRs: [10.244.1.0/24, "fd00:244:1::/64"]}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: "2001:db8::1"}, {type: Hostname, address: a}]}
`)
}

// world is a translator on node a with a store that takes what it makes.
type world struct {
	t *testing.T
	*Translator
	store  *store.Store
	faults map[Object][]Fault
}

func newWorld(t *testing.T, o Options) *world {
	o.Node = "a"
	w := &world{t, NewTranslator(o), store.New(store.Options{}), map[Object][]Fault{}}
	w.SetNode(ReadNode(here()))
	return w
}

// set hands objects over as a source does.
func (w *world) set(objects ...any) {
	for _, x := range objects {
		switch x := x.(type) {
		case *corev1.Service:
			if s, _ := ReadService(x); s != nil {
				w.SetService(s)
			} else {
				w.DeleteService(x.Namespace, x.Name)
			}
		case *discoveryv1.EndpointSlice:
			if s, _ := ReadSlice(x); s != nil {
				w.SetSlice(s)
			} else {
				w.DeleteSlice(x.Namespace, x.Name)
			}
		case *corev1.Node:
			w.SetNode(ReadNode(x))
		default:
			w.t.Fatalf("%T", x)
		}
	}
}

// take gives the changes to the store, which must refuse none of them.
func (w *world) take() Changes {
	w.t.Helper()
	c := w.Take()
	if err := w.store.Source("kube").Apply(c.Upsert, c.Delete); err != nil {
		w.t.Errorf("the store refuses: %v", err)
	}
	for _, o := range c.Cleared {
		if w.faults[o] == nil {
			w.t.Errorf("%s is cleared and had no fault", o)
		}
		delete(w.faults, o)
	}
	seen := map[Object]bool{}
	for _, f := range c.Faults {
		if !seen[f.Object()] {
			seen[f.Object()], w.faults[f.Object()] = true, nil
		}
		w.faults[f.Object()] = append(w.faults[f.Object()], f)
	}
	return c
}

// lines writes everything that is served: a line for a service with what differs
// from the defaults, then for each frontend whom it may choose.
func (w *world) lines() (all []string) {
	for svc := range w.store.Snapshot().Services() {
		text := svc.Name + differences(svc)
		for i := range svc.Frontends {
			text += "\n" + frontendLine(svc, &svc.Frontends[i])
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Split(strings.Join(all, "\n"), "\n")
}

// faultLines writes the faults that stand.
func (w *world) faultLines() (all []string) {
	for o := range maps.Keys(w.faults) {
		for _, f := range w.faults[o] {
			all = append(all, f.Error())
		}
	}
	slices.Sort(all)
	return all
}

func differences(s *store.Service) (text string) {
	d := lb.Default("")
	say := func(differs bool, format string, args ...any) {
		if differs {
			text += " " + fmt.Sprintf(format, args...)
		}
	}
	say(s.Balance != d.Balance, "balance=%s", s.Balance)
	say(s.Affinity != d.Affinity, "affinity=%s/%s", s.Affinity.By, s.Affinity.Timeout)
	say(s.ClientAddress != d.ClientAddress, "client=%s", s.ClientAddress)
	say(s.OnBackendRemoved != d.OnBackendRemoved, "removed=%s", s.OnBackendRemoved)
	say(s.DrainTimeout != d.DrainTimeout, "drain=%s", s.DrainTimeout)
	say(s.Offload.Mode != d.Offload.Mode, "offload=%s", s.Offload.Mode)
	say(s.HealthCheckNodePort != 0, "health=%d", s.HealthCheckNodePort)
	return text
}

// frontendLine writes "tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080"; what
// clients meet when they can be sent nowhere stands in place of the backends.
func frontendLine(s *store.Service, fe *lb.Frontend) string {
	text := "  " + fe.String()
	if fe.ClientAddress != "" {
		text += " " + string(fe.ClientAddress)
	}
	if len(fe.KeepSources) > 0 {
		text += fmt.Sprintf(" of %v", fe.KeepSources)
	}
	if len(fe.AllowSources) > 0 {
		text += fmt.Sprintf(" from %v", fe.AllowSources)
	}
	text += " ->" + chosen(s, fe, false)
	if len(fe.Inside) > 0 {
		text += fmt.Sprintf(" inside %v ->", fe.Inside) + chosen(s, fe, true)
	}
	return text
}

func chosen(s *store.Service, fe *lb.Frontend, inside bool) (text string) {
	var pool []*sched.Backend
	for _, b := range s.Pool {
		if fe.Selection(inside).Has(b.Backend) {
			pool = append(pool, b)
		}
	}
	scheduler := sched.New(s.Balance, pool, sched.Options{})
	for _, b := range pool {
		if scheduler.Allows(b) {
			text += " " + b.Address.String()
		}
	}
	switch {
	case text != "":
		return text
	case fe.WhenNone == lb.Drop:
		return " drop"
	}
	return " refuse"
}

// compare reports lines that are not as wanted.
func compare(t *testing.T, what string, got []string, want string) {
	t.Helper()
	var lines []string
	for l := range strings.Lines(want) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	var trimmed []string
	for _, l := range got {
		if l = strings.TrimSpace(l); l != "" {
			trimmed = append(trimmed, l)
		}
	}
	if !slices.Equal(trimmed, lines) {
		t.Errorf("%s:\n  %s\nwant\n  %s", what, strings.Join(trimmed, "\n  "), strings.Join(lines, "\n  "))
	}
}

func mustKey(s string) lb.FrontendKey {
	fe, err := lb.ParseFrontend(s)
	if err != nil {
		panic(err)
	}
	return fe.FrontendKey
}
