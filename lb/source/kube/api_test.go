package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// cluster is a fake API server with a source that follows it into a store.
type cluster struct {
	t      *testing.T
	client *fake.Clientset
	store  *store.Store
	source *Source
	away   atomic.Bool  // it answers nothing
	host   []netip.Addr // of the node; nil = this host's own

	mu    sync.Mutex // guards what follows
	delay []time.Duration
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	c := &cluster{t: t, client: fake.NewClientset(objects...), store: store.New(store.Options{})}
	c.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return c.away.Load(), nil, errors.New("nobody answers")
	})
	return c
}

// run starts the source, with whatever is to be changed about its options.
func (c *cluster) run(change ...func(*SourceOptions)) *cluster {
	o := SourceOptions{Store: c.store, Node: "a", ObserveProgramming: func(d time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.delay = append(c.delay, d)
	}}
	for _, f := range change {
		f(&o)
	}
	c.source = newAPI(o, fakeClient(c.client), "https://192.0.2.250:6443")
	if c.host != nil {
		c.source.addresses = func() []netip.Addr { return c.host }
	}
	c.follow()
	return c
}

// follow runs the source and the store until the test is over.
func (c *cluster) follow() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.store.Run(ctx) })
	running.Go(func() { c.source.Run(ctx) })
	c.t.Cleanup(func() { stop(); running.Wait() })
}

// synced waits until it has everything, and hears of what changes.
func (c *cluster) synced() *cluster {
	c.t.Helper()
	eventually(c.t, "it has synced, and watches", func() error {
		if stale := c.source.Status().Stale; stale > 0 || !isClosed(c.source.Synced()) {
			return fmt.Errorf("not yet: stale for %s", stale)
		}
		return nil
	})
	return c
}

// serves waits until the backends of a service are these, or it is "absent".
func (c *cluster) serves(service, want string) {
	c.t.Helper()
	eventually(c.t, service+" is served by "+want, func() error {
		if got := backendsOf(c.store, service); got != want {
			return fmt.Errorf("by %s", got)
		}
		return nil
	})
}

func backendsOf(s *store.Store, service string) string {
	svc, ok := s.Snapshot().Service(service)
	if !ok {
		return "absent"
	}
	var words []string
	for _, b := range svc.Pool {
		words = append(words, b.Address.String())
	}
	return strings.Join(words, " ")
}

func eventually(t *testing.T, what string, cond func() error) {
	t.Helper()
	testnet.Eventually(t, 10*time.Second, what, cond)
}

const webSpec = "clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ports: [{port: 80}]"

func TestAPIFollows(t *testing.T) {
	c := newCluster(t, here(), service("web", webSpec), slice("web-1", "web", "8080", "10.244.1.2 a")).run().synced()
	c.serves("default/web", "10.244.1.2:8080")
	api, ctx := c.client, t.Context()

	if _, err := api.DiscoveryV1().EndpointSlices("default").Create(ctx, slice("web-2", "web", "8080", "10.244.2.2 b"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.serves("default/web", "10.244.1.2:8080 10.244.2.2:8080")
	if _, err := api.DiscoveryV1().EndpointSlices("default").Update(ctx, slice("web-1", "web", "8080", "10.244.1.3 a"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.serves("default/web", "10.244.1.3:8080 10.244.2.2:8080")
	if err := api.DiscoveryV1().EndpointSlices("default").Delete(ctx, "web-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.serves("default/web", "10.244.1.3:8080")
	if st := c.source.Status(); st.Objects[kindService] != 1 || st.Objects[kindSlice] != 1 || st.Objects[kindNode] != 1 {
		t.Errorf("it counts %v", st.Objects)
	}
	external := service("web", "type: ExternalName, externalName: example.net") // not for us any more
	if _, err := api.CoreV1().Services("default").Update(ctx, external, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.serves("default/web", "absent")
}

// Nothing is handed over before everything has come: a service without its slices
// would refuse clients that are served now.
func TestAPISyncsAllOrNothing(t *testing.T) {
	c := newCluster(t, here(), service("web", webSpec), slice("web-1", "web", "8080", "10.244.1.2 a"))
	var noSlices atomic.Bool
	noSlices.Store(true)
	asked := make(chan struct{}, 100)
	c.client.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		if noSlices.Load() {
			asked <- struct{}{}
		}
		return noSlices.Load(), nil, errors.New("forbidden")
	})
	c.run()
	<-asked
	<-asked // by then the services have come, or will not hinder
	eventually(t, "the services have come", func() error {
		if n := c.source.Status().Objects[kindService]; n != 1 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	if isClosed(c.source.Synced()) || backendsOf(c.store, "default/web") != "absent" {
		t.Error("half of the cluster was handed over")
	}
	noSlices.Store(false)
	c.synced().serves("default/web", "10.244.1.2:8080")
}

// An API server that goes away: what is known stays, its age is told, and what has
// happened meanwhile is made up for, also what has gone.
func TestAPIOutage(t *testing.T) {
	c := newCluster(t, here(), service("web", webSpec), service("api", "clusterIP: 10.96.0.11, ports: [{port: 80}]"),
		slice("web-1", "web", "8080", "10.244.1.2 a"))
	watches := c.cutWatches()
	c.run().synced().serves("default/web", "10.244.1.2:8080")

	c.away.Store(true)
	watches.cut()
	eventually(t, "it is known to be stale", func() error {
		if c.source.Status().Stale < 20*time.Millisecond {
			return errors.New("it is not")
		}
		return nil
	})
	for _, err := range []error{
		c.client.Tracker().Update(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), slice("web-1", "web", "8080", "10.244.1.9 a"), "default"),
		c.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("services"), "default", "api"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := backendsOf(c.store, "default/web"); got != "10.244.1.2:8080" {
		t.Errorf("what was known was changed to %s", got)
	}
	if st := c.source.Status(); st.Waiting > 0 || c.store.Snapshot().Counts().Services != 2 {
		t.Errorf("%+v", st)
	}

	c.away.Store(false)
	watches.restore()
	c.serves("default/web", "10.244.1.9:8080")
	c.serves("default/api", "absent")
	eventually(t, "it is not stale any more", func() error {
		if stale := c.source.Status().Stale; stale > 0 {
			return fmt.Errorf("for %s", stale)
		}
		return nil
	})
}

// Of faulty objects each is reported, by event too, and all others are served.
func TestAPIFaults(t *testing.T) {
	c := newCluster(t, here(),
		service("web", webSpec), slice("web-1", "web", "8080", "10.244.1.2 a", "169.254.0.1 a"),
		service("bad", "clusterIP: 10.96.0.999, clusterIPs: [10.96.0.999], ports: [{port: 80}]"),
	).run().synced()
	c.serves("default/web", "10.244.1.2:8080")
	if st := c.source.Status(); st.Faults[kindService] != 1 || st.Faults[kindSlice] != 1 {
		t.Errorf("faults %v", st.Faults)
	}
	c.event("Node", "a", reasonStarting, "")
	e := c.event("Service", "bad", reasonFaulty, "spec.clusterIPs[0]")
	if e.Type != corev1.EventTypeWarning || string(e.Regarding.UID) != "uid-of-bad" {
		t.Errorf("%+v", e)
	}
	c.event("Service", "web", reasonFaulty, "EndpointSlice web-1: endpoints[1].addresses: 169.254.0.1")

	if _, err := c.client.CoreV1().Services("default").Update(t.Context(),
		service("bad", "clusterIP: 10.96.0.12, clusterIPs: [10.96.0.12], ports: [{port: 80}]"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the fault is gone", func() error {
		if n := c.source.Status().Faults[kindService]; n != 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

// What cannot be programmed is an event of its Service.
func TestAPIFailedFrontend(t *testing.T) {
	c := newCluster(t, here(), service("web", webSpec), service("api", "clusterIP: 10.96.0.11, ports: [{port: 80}]"))
	c.store.Register(store.Frontends, "test", failing{"default/web", errors.New("the port is taken")})
	c.run().synced()
	c.event("Service", "web", reasonFailed, "the port is taken")
}

// failing is a programmer that cannot do one service.
type failing struct {
	service string
	err     error
}

// Program implements store.Programmer.
func (f failing) Program(_ context.Context, c store.Change) (failures []store.Failure) {
	for _, name := range c.Services {
		if svc, ok := c.To.Service(name); ok && name == f.service {
			failures = append(failures, store.Failure{Service: name, Frontend: svc.Frontends[0].FrontendKey, Err: f.err})
		}
	}
	return failures
}

// Times of changes are observed when they are in force, but not those of before the
// process was there.
func TestAPIProgrammingTime(t *testing.T) {
	old := slice("web-1", "web", "8080", "10.244.1.2 a")
	old.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().Add(-time.Hour).Format(time.RFC3339Nano)}
	c := newCluster(t, here(), service("web", webSpec), old).run().synced()
	changed := slice("web-1", "web", "8080", "10.244.1.3 a")
	changed.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().Format(time.RFC3339Nano)}
	if _, err := c.client.DiscoveryV1().EndpointSlices("default").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the change is timed", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.delay) != 1 || c.delay[0] > time.Minute {
			return fmt.Errorf("observed %v", c.delay)
		}
		return nil
	})
	if st := c.source.Status(); st.InForce.IsZero() || st.InForce.Before(st.Queued) || st.Came != (Counts{1, 2}) || st.Pending != (Counts{}) {
		t.Errorf("%+v", st)
	}
}

// The API server's own address is nobody's to serve at, but by its own Service.
func TestAPIServerAddressIsReserved(t *testing.T) {
	c := newCluster(t, here(),
		service("thief", "clusterIP: 10.96.0.66, externalIPs: [192.0.2.250, 198.51.100.7], ports: [{port: 6443}]"),
		service("second", "clusterIP: 10.96.0.67, externalIPs: [192.0.2.251], ports: [{port: 6443}]"),
		service("kubernetes", "clusterIP: 10.96.0.1, ports: [{name: https, port: 443}]"),
		slice("kubernetes", "kubernetes", "https 6443", "192.0.2.250", "192.0.2.251"),
	).run().synced()
	for at, want := range map[string]string{
		"192.0.2.250:6443": "", "192.0.2.251:6443": "", "198.51.100.7:6443": "default/thief", "10.96.0.67:6443": "default/second",
		"10.96.0.1:443": "default/kubernetes:https",
	} {
		owner := ""
		if fe, ok := c.store.Snapshot().Frontend(lb.FrontendKey{Proto: tcp, Address: netip.MustParseAddrPort(at)}); ok {
			owner = fe.Service.Name
		}
		if owner != want {
			t.Errorf("%s is of %q, want %q", at, owner, want)
		}
	}
	c.event("Service", "thief", reasonFaulty, "192.0.2.250:6443 is where the API server itself is")
}

// Node ports at the primary addresses follow the Node, which may come later.
func TestAPIPrimaryNodePorts(t *testing.T) {
	c := newCluster(t, service("web", "type: NodePort, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}]"))
	for _, a := range []string{"127.0.0.1", "192.0.2.1", "198.51.100.1"} {
		c.host = append(c.host, netip.MustParseAddr(a))
	}
	c.run(func(o *SourceOptions) { o.NodePorts.Primary = true }).synced()
	at := func(want string) {
		t.Helper()
		eventually(t, "node ports are at "+want, func() error {
			var all []string
			svc, _ := c.store.Snapshot().Service("default/web")
			for _, fe := range svc.Frontends {
				if fe.Address.Port() == 30080 {
					all = append(all, fe.Address.Addr().String())
				}
			}
			if got := strings.Join(all, " "); got != want {
				return errors.New(got)
			}
			return nil
		})
	}
	at("127.0.0.1")
	n := here()
	if _, err := c.client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	at("192.0.2.1")
}

func TestAPILeavingNode(t *testing.T) {
	c := newCluster(t, here()).run().synced()
	leaving := func(want bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("leaving is %v", want), func() error {
			if got := c.source.Status().Leaving; got != want {
				return fmt.Errorf("it is %v", got)
			}
			return nil
		})
	}
	leaving(false)
	n := here()
	n.Spec.Taints = []corev1.Taint{{Key: taintLeaving, Effect: corev1.TaintEffectNoSchedule}}
	for _, next := range []*corev1.Node{n, here()} {
		if _, err := c.client.CoreV1().Nodes().Update(t.Context(), next, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		leaving(next == n)
	}
	if err := c.client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	leaving(true)
}
