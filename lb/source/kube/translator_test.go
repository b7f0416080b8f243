package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/baton-lb/baton/lb"
)

const plain = "clusterIP: 10.96.0.10, ports: [{port: 80}]"

func names(list []lb.Service) (all []string) {
	for i := range list {
		all = append(all, list[i].Name)
	}
	slices.Sort(all)
	return all
}

// wantChanges compares the names of what a Take has brought.
func (w *world) wantChanges(what string, upsert, gone []string) Changes {
	w.t.Helper()
	c := w.take()
	slices.Sort(c.Delete)
	if got := names(c.Upsert); !slices.Equal(got, upsert) || !slices.Equal(c.Delete, gone) {
		w.t.Errorf("%s: %q and without %q; want %q without %q", what, got, c.Delete, upsert, gone)
	}
	return c
}

// A change of an object is a change of its services and of no others.
func TestTakeOnlyWhatHasChanged(t *testing.T) {
	w := newWorld(t, Options{})
	w.wantChanges("nothing", nil, nil)
	w.set(web())
	w.wantChanges("a slice without its Service", nil, nil)
	w.set(service("web", plain), service("dns", "clusterIP: 10.96.0.53, ports: [{name: a, port: 53}, {name: b, port: 54}]"))
	w.wantChanges("the Services", []string{"default/dns:a", "default/dns:b", "default/web"}, nil)
	w.wantChanges("nothing more", nil, nil)

	w.set(web())
	w.wantChanges("the same slice again", nil, nil)
	w.set(slice("web-1", "web", "8080", "10.244.1.2 a", "10.244.2.2 b notready"))
	w.wantChanges("an endpoint that is not ready any more", []string{"default/web"}, nil)
	w.set(slice("web-2", "web", "8080", "10.244.2.3 b"))
	w.set(slice("web-3", "web", "8080", "10.244.2.4 b"))
	w.wantChanges("two more slices", []string{"default/web"}, nil)
	compare(t, "served", w.lines(), `
		default/dns:a
		tcp://10.96.0.53:53 transparent -> refuse
		default/dns:b
		tcp://10.96.0.53:54 transparent -> refuse
		default/web
		tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080 10.244.2.3:8080 10.244.2.4:8080`)

	w.DeleteSlice("default", "web-2")
	w.DeleteSlice("default", "web-9")
	w.DeleteService("default", "none")
	w.set(slice("web-3", "dns", "a 53", "10.244.2.4 b")) // of another Service now
	w.set(service("dns", "clusterIP: 10.96.0.53, ports: [{name: a, port: 53}, {name: c, port: 55}]"))
	w.wantChanges("another Service for a slice, another port", []string{"default/dns:a", "default/dns:c", "default/web"}, []string{"default/dns:b"})
	compare(t, "served", w.lines(), `
		default/dns:a
		tcp://10.96.0.53:53 transparent -> 10.244.2.4:53
		default/dns:c
		tcp://10.96.0.53:55 transparent -> refuse
		default/web
		tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080`)

	w.set(service("web", "type: ExternalName, externalName: web.example"))
	w.DeleteService("default", "dns")
	w.set(service("dns", "clusterIP: 10.96.0.53, ports: [{name: a, port: 53}]"))
	w.wantChanges("no Service for us, and one that went and came", []string{"default/dns:a"}, []string{"default/dns:c", "default/web"})
	w.set(service("web", plain))
	w.wantChanges("a Service again", []string{"default/web"}, nil)
	compare(t, "served", w.lines(), `
		default/dns:a
		tcp://10.96.0.53:53 transparent -> 10.244.2.4:53
		default/web
		tcp://10.96.0.10:80 transparent -> 10.244.1.2:8080`)

	w.DeleteService("default", "web")
	w.DeleteService("default", "dns")
	w.DeleteSlice("default", "web-1")
	w.DeleteSlice("default", "web-3")
	w.wantChanges("nothing left", nil, []string{"default/dns:a", "default/web"})
	if len(w.entries)+len(w.slices)+len(w.claims.owners)+len(w.claims.contested)+len(w.standing) > 0 {
		t.Errorf("something is kept: %v %v %v %v", w.entries, w.slices, w.claims, w.standing)
	}
}

// What a client meets where no endpoint may be used follows the endpoints
// elsewhere.
func TestWhenNoneFollows(t *testing.T) {
	w := newWorld(t, Options{})
	w.set(service("web", plain+", internalTrafficPolicy: Local"))
	for _, c := range []struct {
		endpoint string
		want     string
	}{
		{"10.244.2.2 b notready", "refuse"},
		{"10.244.2.2 b", "drop"},
		{"10.244.2.2 b terminating", "drop"},
		{"10.244.2.2 b gone", "refuse"},
		{"10.244.1.2 a", "10.244.1.2:8080"},
		{"10.244.2.2 b", "drop"},
	} {
		w.set(slice("web-1", "web", "8080", c.endpoint))
		w.take()
		compare(t, c.endpoint, w.lines(), "default/web\ntcp://10.96.0.10:80 transparent -> "+c.want)
	}
	w.DeleteSlice("default", "web-1")
	w.take()
	compare(t, "no slice", w.lines(), "default/web\ntcp://10.96.0.10:80 transparent -> refuse")
}

// A frontend that several Services ask for is given over with the change that
// sets it free, whatever the order in which they came.
func TestFrontendIsGivenOver(t *testing.T) {
	w := newWorld(t, Options{})
	same := "type: NodePort, clusterIP: 10.96.0.%, ports: [{name: p, port: 80, nodePort: 30080}]"
	rival := func(name, ip string) *corev1.Service { return service(name, strings.ReplaceAll(same, "%", ip)) }
	holder := func(what, want string, faults int) {
		t.Helper()
		w.take()
		fe, ok := w.store.Snapshot().Frontend(mustKey("tcp://0.0.0.0:30080"))
		got := ""
		if ok {
			got = fe.Service.Name
		}
		if got != want {
			t.Errorf("%s: the node port is that of %q, want %q", what, got, want)
		}
		if len(w.faults) != faults {
			t.Errorf("%s: %q", what, w.faultLines())
		}
	}
	w.set(rival("c", "13"))
	holder("alone", "default/c:p", 0)
	w.set(rival("b", "12"), rival("d", "14"))
	holder("an older one comes", "default/b:p", 2)
	w.set(rival("a", "11"))
	holder("a still older one", "default/a:p", 3)
	w.set(rival("b", "12"))
	holder("nothing new", "default/a:p", 3)
	w.DeleteService("default", "a")
	holder("it goes", "default/b:p", 2)
	w.set(service("b", "clusterIP: 10.96.0.12, ports: [{name: p, port: 80}]"))
	holder("the next does not want it any more", "default/c:p", 1)
	w.DeleteService("default", "c")
	w.set(rival("c", "13"))
	holder("one is made again", "default/c:p", 1)
	w.DeleteService("default", "c")
	w.DeleteService("default", "d")
	holder("nobody", "", 0)
}

// Faults are told when they change, and cleared when there are none any more.
func TestFaultsComeAndGo(t *testing.T) {
	w := newWorld(t, Options{})
	bad := service("web", "clusterIP: 10.96.0.10, externalIPs: [x], ports: [{port: 80}]")
	w.set(bad, slice("web-1", "web", "8080", "y"))
	if c := w.take(); len(c.Faults) != 2 || len(c.Cleared) != 0 {
		t.Fatalf("%v, %v", c.Faults, c.Cleared)
	}
	f := w.faults[Object{kindService, "default", "web"}][0]
	if f.UID != "uid-of-web" || f.Service != "default/web" || f.Field != "spec.externalIPs[0]" {
		t.Errorf("%+v", f)
	}
	if f := w.faults[Object{kindSlice, "default", "web-1"}][0]; f.UID != "uid-of-web-1" || f.Service != "default/web" {
		t.Errorf("%+v", f)
	}
	w.set(bad, slice("web-1", "web", "8080", "y", "10.244.1.2 a"))
	if c := w.take(); len(c.Faults) != 0 || len(c.Cleared) != 0 {
		t.Errorf("told again: %v, %v", c.Faults, c.Cleared)
	}
	w.set(service("web", plain), slice("web-1", "web", "8080", "z"))
	if c := w.take(); len(c.Faults) != 1 || c.Faults[0].Kind != kindSlice || len(c.Cleared) != 1 {
		t.Errorf("%v, %v", c.Faults, c.Cleared)
	}
	w.DeleteSlice("default", "web-1")
	w.DeleteService("default", "web")
	if c := w.take(); len(c.Cleared) != 1 || len(w.faults) != 0 {
		t.Errorf("%v, %v", c.Cleared, w.faults)
	}
}

func TestNodeChanges(t *testing.T) {
	w := newWorld(t, Options{NodePortAddresses: prefixes("192.0.2.0/24", "2001:db8::/32")})
	w.set(service("web", "type: NodePort, clusterIP: 10.96.0.10, externalTrafficPolicy: Local, ports: [{port: 80, nodePort: 30080}]"),
		slice("web-1", "web", "8080", "10.244.1.2 a zone=z1", "10.244.2.2 b zone=z2"))
	w.take()
	const first = "default/web\ntcp://10.96.0.10:80 transparent -> "
	compare(t, "at first", w.lines(), first+`10.244.1.2:8080
		tcp://192.0.2.1:30080 transparent -> 10.244.1.2:8080 inside [127.0.0.0/8 10.244.1.0/24] -> 10.244.1.2:8080`)
	w.set(here())
	w.wantChanges("the same node", nil, nil)

	n := here()
	n.Labels[corev1.LabelTopologyZone] = "z2"
	w.set(n)
	w.wantChanges("another zone", []string{"default/web"}, nil)
	compare(t, "in another zone", w.lines(), first+`10.244.2.2:8080
		tcp://192.0.2.1:30080 transparent -> 10.244.1.2:8080 inside [127.0.0.0/8 10.244.1.0/24] -> 10.244.2.2:8080`)

	n = here()
	n.Spec.PodCIDRs, n.Status.Addresses[0].Address = nil, "192.0.2.7"
	n.Spec.PodCIDR = "10.244.7.0/24"
	w.set(n)
	w.take()
	compare(t, "with other addresses", w.lines(), first+`10.244.1.2:8080
		tcp://192.0.2.7:30080 transparent -> 10.244.1.2:8080 inside [127.0.0.0/8 10.244.7.0/24] -> 10.244.1.2:8080`)

	host := []netip.Addr{netip.MustParseAddr("192.0.2.8"), netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("203.0.113.1")}
	w.SetHost(host)
	w.take()
	compare(t, "with the host's own addresses", w.lines(), first+`10.244.1.2:8080
		tcp://192.0.2.8:30080 transparent -> 10.244.1.2:8080 inside [127.0.0.0/8 10.244.7.0/24] -> 10.244.1.2:8080
		tcp://192.0.2.9:30080 transparent -> 10.244.1.2:8080 inside [127.0.0.0/8 10.244.7.0/24] -> 10.244.1.2:8080`)
	w.SetHost(slices.Clone(host))
	w.wantChanges("the same addresses", nil, nil)
}

// Whatever a slice says anew of its endpoints is a change.
func TestSliceSays(t *testing.T) {
	w := newWorld(t, Options{})
	w.set(service("web", "clusterIP: 10.96.0.10, ports: [{name: a, port: 80}, {name: b, port: 81}]"))
	for _, s := range []*discoveryv1.EndpointSlice{
		slice("web-1", "web", "a 8080", "10.244.1.2 a", "10.244.2.2 b"),
		slice("web-1", "web", "a 8080, b 8081", "10.244.1.2 a", "10.244.2.2 b"),
		slice("web-1", "web", "a 9090, b 8081", "10.244.1.2 a", "10.244.2.2 b"),
		slice("web-1", "web", "a 9090, b 8081 UDP", "10.244.1.2 a", "10.244.2.2 b"),
		slice("web-1", "web", "a 9090", "10.244.1.2 a", "10.244.2.2 c"),
		slice("web-1", "web", "a 9090", "10.244.1.2 a", "10.244.2.2 c notready"),
		slice("web-1", "web", "a 9090", "10.244.1.2 a"),
		slice("web-1", "web", "a 9090", "10.244.1.2 a zone=z1"),
		slice("web-1", "web", "a 9090", "10.244.1.2 a zone=z2"),
		slice("web-1", "web", "a 9090", "10.244.1.2 a zone=z2 node=a"),
		slice("web-1", "web", "a 9090", "10.244.1.2 a zone=z2 node=b"),
		slice("web-1", "web", "a 9090", "10.244.1.3 a zone=z2 node=b"),
		slice("web-1", "web", "a 9090"),
	} {
		w.set(s)
		w.wantChanges(fmt.Sprint(s.Endpoints), []string{"default/web:a", "default/web:b"}, nil)
		w.set(s.DeepCopy())
		w.wantChanges("the same again", nil, nil)
	}
}

// Hints are for endpoints that are ready: one that is on its way out is not sent
// away from by them too.
func TestFarIsReady(t *testing.T) {
	w := newWorld(t, Options{})
	w.set(service("web", plain), slice("web-1", "web", "8080", "10.244.1.2 a zone=z1", "10.244.2.2 b zone=z2", "10.244.2.3 b zone=z2 terminating"))
	w.take()
	s, _ := w.store.Snapshot().Service("default/web")
	for address, far := range map[string]bool{"10.244.1.2:8080": false, "10.244.2.2:8080": true, "10.244.2.3:8080": false} {
		if b, ok := s.Backend(netip.MustParseAddrPort(address)); !ok || b.Far != far {
			t.Errorf("%s: %+v", address, b)
		}
	}
}

// Without a name of its own no node has endpoints: not those without a node.
func TestNoNode(t *testing.T) {
	tr := NewTranslator(Options{})
	s, _ := ReadService(service("web", plain))
	e, _ := ReadSlice(slice("web-1", "web", "8080", "10.244.1.2"))
	tr.SetService(s)
	tr.SetSlice(e)
	if c := tr.Take(); len(c.Upsert) != 1 || len(c.Upsert[0].Backends) != 1 || c.Upsert[0].Backends[0].Local {
		t.Errorf("%+v", c.Upsert)
	}
}

// A range that has all addresses of a family is the wildcard address.
func TestAllNodePortAddresses(t *testing.T) {
	w := newWorld(t, Options{NodePortAddresses: prefixes("192.0.2.0/24", "0.0.0.0/0")})
	w.set(service("web", "type: NodePort, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}]"))
	w.take()
	compare(t, "served", w.lines(), `
		default/web
		tcp://10.96.0.10:80 transparent -> refuse
		tcp://0.0.0.0:30080 masked -> refuse`)
}

func TestTriggers(t *testing.T) {
	w := newWorld(t, Options{})
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	change := func(endpoint string, when time.Time) {
		s := slice("web-1", "web", "8080", endpoint)
		s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: when.Format(time.RFC3339Nano)}
		w.set(s)
	}
	change("10.244.1.2 a", at)
	if c := w.take(); len(c.Triggers) != 0 {
		t.Errorf("before the Service is there: %v", c.Triggers)
	}
	w.set(service("web", plain))
	change("10.244.1.3 a", at.Add(time.Second))
	change("10.244.1.3 a", at.Add(time.Minute)) // says nothing new
	if c := w.take(); !slices.Equal(c.Triggers, []time.Time{at.Add(time.Second)}) {
		t.Errorf("%v", c.Triggers)
	}
	w.set(slice("web-1", "web", "8080", "10.244.1.4 a"))
	if c := w.take(); len(c.Triggers) != 0 {
		t.Errorf("told again: %v", c.Triggers)
	}
}

// Sessions of UDP clients leave an endpoint that does not serve, as if it had
// gone; connections stay.
func TestNotServingOfUDP(t *testing.T) {
	w := newWorld(t, Options{})
	w.set(service("dns", "clusterIP: 10.96.0.53, ports: [{name: tcp, port: 53}, {name: udp, port: 53, protocol: UDP}]"),
		slice("dns-1", "dns", "tcp 53, udp 53 UDP", "10.244.1.2 a notready", "10.244.1.3 a terminating", "10.244.1.4 a"))
	w.take()
	for name, want := range map[string]int{"default/dns:tcp": 3, "default/dns:udp": 2} {
		if s, _ := w.store.Snapshot().Service(name); len(s.Pool) != want {
			t.Errorf("%s has %d backends, want %d", name, len(s.Pool), want)
		}
	}
}
