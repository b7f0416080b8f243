package kube

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

const (
	kindNode     = "Node"
	kindFile     = "File" // of objects; no kind of Kubernetes
	sliceVersion = "discovery.k8s.io/v1"
)

// notForOthers selects Services and slices that are for the service proxy of a node.
const notForOthers = "!" + labelProxyName + ",!" + labelHeadless

// taintLeaving is put on a node that the cluster autoscaler is about to delete.
const taintLeaving = "ToBeDeletedByClusterAutoscaler"

// api feeds a source from an API server.
type api struct {
	client  *client
	server  string // as its configuration names it
	node    string
	log     *slog.Logger
	contact *contact
}

// NewAPI makes a source that follows an API server. What is wrong with how that is
// reached shows now, whether it is there only later: it is waited for.
func NewAPI(o SourceOptions, c ClientConfig) (*Source, error) {
	k, server, err := c.client()
	if err != nil {
		return nil, err
	}
	return newAPI(o, k, server), nil
}

func newAPI(o SourceOptions, k *client, server string) *Source {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return newSource(o, &api{
		client: k, server: server, node: o.Node, log: o.Log,
		contact: newContact(o.Log, kindService, kindSlice, kindNode),
	}, newEvents(k.events, o.Log))
}

func (a *api) reload(s *Source)     { s.queue.add(func(b *batch) { b.reloaded = true }) }
func (a *api) stale() time.Duration { return a.contact.stale() }
func (a *api) where(Object) string  { return "" }

// feed follows the three kinds until ctx ends.
func (a *api) feed(ctx context.Context, s *Source) {
	ctx = withClientLog(ctx, a.log)
	s.reserved.named = a.addresses(ctx)
	kinds := []*followed{a.services(s), a.slices(s), a.nodes(s)}
	var missing atomic.Int32
	missing.Store(int32(len(kinds)))
	var wg sync.WaitGroup
	for _, f := range kinds {
		f.into.filled = func() {
			if missing.Add(-1) == 0 {
				s.queue.complete()
			}
		}
		wg.Go(func() { f.run(ctx, a.contact) })
	}
	wg.Wait()
}

// withClientLog says where the client library logs what it does: nowhere, but for who
// looks closely. What matters of it is told by contact.
func withClientLog(ctx context.Context, log *slog.Logger) context.Context {
	if log.Enabled(ctx, slog.LevelDebug) {
		return klog.NewContext(ctx, logr.FromSlogHandler(log.Handler()))
	}
	return klog.NewContext(ctx, logr.Discard())
}

// lookupTimeout is how long the name of the API server may take. Nothing waits for
// it but what else has come.
const lookupTimeout = 2 * time.Second

// addresses are where the API server is by its configuration.
func (a *api) addresses(ctx context.Context) []netip.Addr {
	host := a.server
	if u, err := url.Parse(a.server); err == nil && u.Host != "" {
		host = u.Hostname()
	}
	if addr, err := parseAddr(host); err == nil {
		return []netip.Addr{addr}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		a.log.Debug("where the API server is is not known", "host", host, "err", err)
	}
	for i := range list {
		list[i] = list[i].Unmap()
	}
	return list
}

// follow asks for the objects that the selectors of only allow.
func follow[L runtime.Object](kind string, sample runtime.Object, c lister[L], only metav1.ListOptions) *followed {
	narrow := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = only.LabelSelector, only.FieldSelector
		return o
	}
	return &followed{
		kind: kind, sample: sample,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.List(ctx, narrow(o))
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, narrow(o))
		},
	}
}

func (a *api) services(s *Source) *followed {
	f := follow(kindService, &corev1.Service{}, a.client.services, metav1.ListOptions{LabelSelector: notForOthers})
	f.into = &intake{
		read: func(object any) any {
			svc, _ := ReadService(object.(*corev1.Service)) // the Translator knows what is wrong with it
			return svc
		},
		put: func(k types.NamespacedName, wanted any) {
			svc, _ := wanted.(*Service)
			s.queue.setService(k, svc)
			s.count(kindService, len(f.into.known))
		},
	}
	return f
}

func (a *api) slices(s *Source) *followed {
	f := follow(kindSlice, &discoveryv1.EndpointSlice{}, a.client.slices, metav1.ListOptions{LabelSelector: notForOthers})
	f.into = &intake{
		read: func(object any) any {
			slice, _ := ReadSlice(object.(*discoveryv1.EndpointSlice))
			return slice
		},
		put: func(k types.NamespacedName, wanted any) {
			slice, _ := wanted.(*Slice)
			s.queue.setSlice(k, slice)
			s.count(kindSlice, len(f.into.known))
		},
	}
	return f
}

// nodes follows this node, and no other.
func (a *api) nodes(s *Source) *followed {
	own := fields.OneTermEqualSelector(metav1.ObjectNameField, a.node).String()
	f := follow(kindNode, &corev1.Node{}, a.client.nodes, metav1.ListOptions{FieldSelector: own})
	f.into = &intake{
		read: func(object any) any { return object }, // there is one
		put: func(k types.NamespacedName, object any) {
			if k.Name != a.node { // whatever the server makes of the selector
				return
			}
			n, ok := object.(*corev1.Node)
			if ok {
				s.queue.setNode(ReadNode(n))
			}
			s.setLeaving(!ok || isLeaving(n))
			s.count(kindNode, len(f.into.known))
		},
	}
	return f
}

// isLeaving reports whether a node is about to go.
func isLeaving(n *corev1.Node) bool {
	if !n.DeletionTimestamp.IsZero() {
		return true
	}
	for _, taint := range n.Spec.Taints {
		if taint.Key == taintLeaving {
			return true
		}
	}
	return false
}
