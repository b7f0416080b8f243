package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"

	"github.com/baton-lb/baton/internal/flow"
)

const tcp = flow.TCP

// fakeClient asks a fake API server.
func fakeClient(k kubernetes.Interface) *client {
	return &client{
		services: oldLister[*corev1.ServiceList]{k.CoreV1().Services(metav1.NamespaceAll)},
		slices:   oldLister[*discoveryv1.EndpointSliceList]{k.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)},
		nodes:    oldLister[*corev1.NodeList]{k.CoreV1().Nodes()},
		events:   func(namespace string) eventWriter { return k.EventsV1().Events(namespace) },
	}
}

// oldLister begins no watch with all that there is, as API servers did before 1.27.
type oldLister[L runtime.Object] struct{ lister[L] }

func (l oldLister[L]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
	}
	return l.lister.Watch(ctx, o)
}

// event waits for an event about an object, the note of which has some text.
func (c *cluster) event(kind, name, reason, text string) (found eventsv1.Event) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("an event %s about %s %s says %q", reason, kind, name, text), func() error {
		list, err := c.client.EventsV1().Events(metav1.NamespaceAll).List(c.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var all []string
		for _, e := range list.Items {
			if e.Regarding.Kind == kind && e.Regarding.Name == name && e.Reason == reason && strings.Contains(e.Note, text) {
				found = e
				return nil
			}
			all = append(all, fmt.Sprintf("%s %s: %s %s", e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note))
		}
		return errors.New(strings.Join(all, "\n"))
	})
	return found
}

// watches are those that a cluster serves; they can be cut, and then none is served:
// everything has to be read anew, for the fake server repeats nothing.
type watches struct {
	mu   sync.Mutex // guards what follows
	open []watch.Interface
	none bool
}

// cutWatches has the watches of a cluster known.
func (c *cluster) cutWatches() *watches {
	w := new(watches)
	c.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.none {
			return true, nil, apierrors.NewResourceExpired("it has forgotten")
		}
		got, err := c.client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		w.open = append(w.open, got)
		return true, got, nil
	})
	return w
}

func (w *watches) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.none = true
	for _, o := range w.open {
		o.Stop()
	}
	w.open = nil
}

func (w *watches) restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.none = false
}
