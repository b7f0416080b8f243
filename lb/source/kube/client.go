package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
)

// ClientConfig says how the API server is reached. The zero value is: as a pod
// does.
type ClientConfig struct {
	Kubeconfig         string // a file; "" = as a pod does
	ContentType        string // "" = protobuf
	AcceptContentTypes string // "" = protobuf, else JSON
	QPS                float32
	Burst              int
	UserAgent          string
}

const protobuf = "application/vnd.kubernetes.protobuf"

// rest is the client library's form of it.
func (c ClientConfig) rest() (r *rest.Config, err error) {
	if c.Kubeconfig == "" {
		r, err = rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("reach the API server: this is no pod of a cluster; name a file with --kubeconfig")
		}
	} else {
		r, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	r.ContentType, r.AcceptContentTypes = protobuf, protobuf+",application/json"
	if c.ContentType != "" {
		r.ContentType = c.ContentType
	}
	if c.AcceptContentTypes != "" {
		r.AcceptContentTypes = c.AcceptContentTypes
	}
	r.QPS, r.Burst, r.UserAgent = c.QPS, c.Burst, c.UserAgent
	return r, nil
}

// client makes a client, and says where its server is: HOST or HOST:PORT, perhaps
// within a URL.
func (c ClientConfig) client() (*client, string, error) {
	r, err := c.rest()
	if err != nil {
		return nil, "", err
	}
	k, err := newClient(r)
	if err != nil {
		return nil, "", fmt.Errorf("reach the API server: %w", err)
	}
	return k, r.Host, nil
}

// client is what is asked of an API server. The library's own clients are for every kind
// that Kubernetes has, and cost a process as much as everything else in it.
type client struct {
	services lister[*corev1.ServiceList]
	slices   lister[*discoveryv1.EndpointSliceList]
	nodes    lister[*corev1.NodeList]
	events   func(namespace string) eventWriter
}

// lister is a client for objects of one kind, and L their list.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// eventWriter is a client for the events of a namespace.
type eventWriter interface {
	Create(context.Context, *eventsv1.Event, metav1.CreateOptions) (*eventsv1.Event, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*eventsv1.Event, error)
}

// newClient makes a client whose groups share connections and the limit of their rate.
func newClient(r *rest.Config) (*client, error) {
	streamLists() // before the library looks at its settings
	http, err := rest.HTTPClientFor(r)
	if err != nil {
		return nil, err
	}
	shared := rest.CopyConfig(r)
	shared.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(cmp.Or(r.QPS, rest.DefaultQPS), cmp.Or(r.Burst, rest.DefaultBurst))
	scheme := newScheme()
	codecs, parameters := serializer.NewCodecFactory(scheme).WithoutConversion(), runtime.NewParameterCodec(scheme)
	group := func(path string, version schema.GroupVersion) (*rest.RESTClient, error) {
		of := rest.CopyConfig(shared)
		of.APIPath, of.GroupVersion, of.NegotiatedSerializer = path, &version, codecs
		return rest.RESTClientForConfigAndClient(of, http)
	}
	core, err1 := group("/api", corev1.SchemeGroupVersion)
	discovery, err2 := group("/apis", discoveryv1.SchemeGroupVersion)
	events, err3 := group("/apis", eventsv1.SchemeGroupVersion)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	return &client{
		services: kindClient[*corev1.ServiceList]{core, "services", parameters, newOf[corev1.ServiceList]},
		slices:   kindClient[*discoveryv1.EndpointSliceList]{discovery, "endpointslices", parameters, newOf[discoveryv1.EndpointSliceList]},
		nodes:    kindClient[*corev1.NodeList]{core, "nodes", parameters, newOf[corev1.NodeList]},
		events:   func(namespace string) eventWriter { return eventClient{events, namespace} },
	}, nil
}

func newOf[T any]() *T { return new(T) }

// newScheme knows the kinds that are asked for, and no other.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{})
	s.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	s.AddKnownTypes(eventsv1.SchemeGroupVersion, &eventsv1.Event{})
	for _, v := range []schema.GroupVersion{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, eventsv1.SchemeGroupVersion} {
		metav1.AddToGroupVersion(s, v)
	}
	return s
}
