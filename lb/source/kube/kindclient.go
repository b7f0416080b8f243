package kube

import (
	"context"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// kindClient asks for the objects of one kind, in all namespaces.
type kindClient[L runtime.Object] struct {
	rest       rest.Interface
	resource   string
	parameters runtime.ParameterCodec
	list       func() L
}

// List implements lister.
func (c kindClient[L]) List(ctx context.Context, o metav1.ListOptions) (L, error) {
	list := c.list()
	err := c.get(o).Do(ctx).Into(list)
	return list, err
}

// Watch implements lister.
func (c kindClient[L]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return c.get(o).Watch(ctx)
}

func (c kindClient[L]) get(o metav1.ListOptions) *rest.Request {
	r := c.rest.Get().Resource(c.resource).VersionedParams(&o, c.parameters)
	if o.TimeoutSeconds != nil {
		r = r.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	return r
}

// eventClient writes the events of one namespace.
type eventClient struct {
	rest      rest.Interface
	namespace string
}

var _ eventWriter = eventClient{}

// Create implements eventWriter.
func (c eventClient) Create(ctx context.Context, e *eventsv1.Event, _ metav1.CreateOptions) (*eventsv1.Event, error) {
	made := new(eventsv1.Event)
	err := c.rest.Post().Namespace(c.namespace).Resource("events").Body(e).Do(ctx).Into(made)
	return made, err
}

// Patch implements eventWriter.
func (c eventClient) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*eventsv1.Event, error) {
	made := new(eventsv1.Event)
	err := c.rest.Patch(kind).Namespace(c.namespace).Resource("events").Name(name).Body(data).Do(ctx).Into(made)
	return made, err
}
