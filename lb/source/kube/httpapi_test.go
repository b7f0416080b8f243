package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/baton-lb/baton/lb/store"
)

// httpAPI is an API server with as much of one as a source needs, over HTTP: lists,
// and watches that have nothing to tell but that they are too old.
type httpAPI struct {
	t       *testing.T
	at      string
	streams bool // a watch may begin with all that there is

	mu      sync.Mutex // guards what follows
	lists   map[string]runtime.Object
	version int
	asked   map[string]string // query of the last that asked for all, by path
	changed chan struct{}     // closed when version changes
	server  *http.Server
}

const (
	servicesPath = "/api/v1/services"
	nodesPath    = "/api/v1/nodes"
	slicesPath   = "/apis/discovery.k8s.io/v1/endpointslices"
)

func newHTTPAPI(t *testing.T, streams bool) *httpAPI {
	h := &httpAPI{t: t, at: "127.0.0.1:0", streams: streams, lists: make(map[string]runtime.Object), asked: make(map[string]string), changed: make(chan struct{})}
	h.listen()
	t.Cleanup(h.close)
	return h
}

// listen serves, always at the same port.
func (h *httpAPI) listen() {
	h.t.Helper()
	l, err := net.Listen("tcp", h.at)
	if err != nil {
		h.t.Fatal(err)
	}
	h.at = l.Addr().String()
	h.server = &http.Server{Handler: h}
	go func(s *http.Server) { _ = s.Serve(l) }(h.server)
}

// close ends everything that is open, too.
func (h *httpAPI) close() { _ = h.server.Close() }

// set changes what there is.
func (h *httpAPI) set(slices ...discoveryv1.EndpointSlice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version++
	meta := metav1.ListMeta{ResourceVersion: strconv.Itoa(h.version)}
	kind := func(group, version, kind string) metav1.TypeMeta {
		v, k := schema.GroupVersionKind{Group: group, Version: version, Kind: kind}.ToAPIVersionAndKind()
		return metav1.TypeMeta{APIVersion: v, Kind: k}
	}
	h.lists[servicesPath] = &corev1.ServiceList{TypeMeta: kind("", "v1", "ServiceList"), ListMeta: meta, Items: []corev1.Service{*service("web", webSpec)}}
	h.lists[nodesPath] = &corev1.NodeList{TypeMeta: kind("", "v1", "NodeList"), ListMeta: meta, Items: []corev1.Node{*here()}}
	h.lists[slicesPath] = &discoveryv1.EndpointSliceList{
		TypeMeta: kind("discovery.k8s.io", "v1", "EndpointSliceList"), ListMeta: meta, Items: slices,
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// ServeHTTP implements http.Handler.
func (h *httpAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	list, version, changed := h.lists[r.URL.Path], h.version, h.changed
	watch, all := r.URL.Query().Get("watch") != "", r.URL.Query().Get("sendInitialEvents") != ""
	if list != nil && !watch || all && h.streams {
		h.asked[r.URL.Path] = r.URL.RawQuery
	}
	h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case list == nil:
		http.NotFound(w, r)
	case !watch:
		_ = json.NewEncoder(w).Encode(list)
	case all && !h.streams:
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintln(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	default:
		w.WriteHeader(http.StatusOK)
		if all {
			h.stream(w, list, version)
		}
		w.(http.Flusher).Flush()
		if all || r.URL.Query().Get("resourceVersion") == strconv.Itoa(version) {
			select {
			case <-changed:
			case <-r.Context().Done():
				return
			}
		}
		fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`)
	}
}

// stream tells all objects of a list, and that these were all.
func (h *httpAPI) stream(w io.Writer, list runtime.Object, version int) {
	objects, err := meta.ExtractList(list)
	if err != nil {
		h.t.Error(err)
	}
	v, k := list.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	kind := metav1.TypeMeta{APIVersion: v, Kind: strings.TrimSuffix(k, "List")}
	tell := func(what string, object any) {
		text, err := json.Marshal(object)
		if err != nil {
			h.t.Error(err)
		}
		fmt.Fprintf(w, `{"type":"%s","object":{"kind":"%s","apiVersion":"%s",%s}`+"\n", what, kind.Kind, kind.APIVersion, text[1:])
	}
	for _, object := range objects {
		tell("ADDED", object)
	}
	tell("BOOKMARK", metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
}

// kubeconfig is a file that leads to the server.
func (h *httpAPI) kubeconfig() string {
	h.t.Helper()
	path := filepath.Join(h.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://%s"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
`, h.at)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return path
}

// By a kubeconfig and over HTTP: it asks for what is its own, and a server that is away
// when it starts, and again later, is waited for.
func TestAPIOverHTTP(t *testing.T) {
	for name, streams := range map[string]bool{"that streams": true, "that lists": false} {
		t.Run(name, func(t *testing.T) { overHTTP(t, newHTTPAPI(t, streams)) })
	}
}

func overHTTP(t *testing.T, h *httpAPI) {
	h.set(*slice("web-1", "web", "8080", "10.244.1.2 a"))
	h.close()
	c := &cluster{t: t, store: store.New(store.Options{})}
	var err error
	c.source, err = NewAPI(SourceOptions{Store: c.store, Node: "a"}, ClientConfig{Kubeconfig: h.kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	c.follow()
	eventually(t, "it is known to be out of reach", func() error {
		if c.source.Status().Stale < 10*time.Millisecond {
			return errors.New("it is not")
		}
		return nil
	})
	h.listen()
	c.synced().serves("default/web", "10.244.1.2:8080")
	h.mu.Lock()
	for path, want := range map[string]string{
		servicesPath: "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name%2C%21service.kubernetes.io%2Fheadless",
		slicesPath:   "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name%2C%21service.kubernetes.io%2Fheadless",
		nodesPath:    "fieldSelector=metadata.name%3Da",
	} {
		if !strings.Contains(h.asked[path], want) {
			t.Errorf("%s was asked for with %s", path, h.asked[path])
		}
		if strings.Contains(h.asked[path], "sendInitialEvents") != h.streams {
			t.Errorf("%s was read by %s", path, h.asked[path])
		}
	}
	h.mu.Unlock()
	h.set(*slice("web-1", "web", "8080", "10.244.1.3 a"))
	c.serves("default/web", "10.244.1.3:8080")

	h.close()
	h.set(*slice("web-2", "web", "8080", "10.244.1.4 a"))
	eventually(t, "it is known to be out of reach again", func() error {
		if c.source.Status().Stale < 10*time.Millisecond {
			return errors.New("it is not")
		}
		return nil
	})
	if got := backendsOf(c.store, "default/web"); got != "10.244.1.3:8080" {
		t.Errorf("what was known was changed to %s", got)
	}
	h.listen()
	c.serves("default/web", "10.244.1.4:8080")
	eventually(t, "it is in reach", func() error {
		if stale := c.source.Status().Stale; stale > 0 {
			return fmt.Errorf("not for %s", stale)
		}
		return nil
	})
}

func TestClientConfigErrors(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("clusters: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for path, want := range map[string]string{
		"": "this is no pod of a cluster; name a file with --kubeconfig", bad: "reach the API server: ", bad + "none": "no such file",
	} {
		_, err := NewAPI(SourceOptions{Store: store.New(store.Options{})}, ClientConfig{Kubeconfig: path})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", path, err)
		}
	}
}
