package kube

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	object "k8s.io/apimachinery/pkg/runtime"
	wire "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// BenchmarkPeak is the most that is in memory while 500,000 endpoints come from an API server,
// in the protocol of a real one, as one list and as the beginning of a watch.
func BenchmarkPeak(b *testing.B) {
	for name, streams := range map[string]bool{"list": false, "stream": true} {
		b.Run(name, func(b *testing.B) {
			server := httptest.NewServer(&storedAPI{dir: storeObjects(b), streams: streams})
			defer server.Close()
			for b.Loop() {
				before := heap()
				s := running(b)
				k, err := newClient(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: protobuf, AcceptContentTypes: protobuf}})
				if err != nil {
					b.Fatal(err)
				}
				source := newAPI(SourceOptions{Store: s, Node: "node-1"}, k, server.URL)
				ctx, stop := context.WithCancel(b.Context())
				done, peak := make(chan struct{}), make(chan uint64)
				go func() { defer close(done); source.Run(ctx) }()
				go func() { peak <- mostUntil(source.Synced()) }()
				most := <-peak
				b.ReportMetric(float64(most-before)/(1<<20), "peak-MiB")
				b.ReportMetric(float64(heap()-before)/(1<<20), "kept-MiB")
				stop()
				<-done
				runtime.KeepAlive(s)
			}
		})
	}
}

// mostUntil is the most that objects have taken until something is closed.
func mostUntil(end <-chan struct{}) (most uint64) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	every := time.NewTicker(2 * time.Millisecond)
	defer every.Stop()
	for {
		metrics.Read(sample)
		most = max(most, sample[0].Value.Uint64())
		select {
		case <-end:
			return most
		case <-every.C:
		}
	}
}

// storedAPI is an API server that reads what it answers from files.
type storedAPI struct {
	dir     string
	streams bool
}

// ServeHTTP implements http.Handler.
func (a *storedAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, all := filepath.Base(r.URL.Path), r.URL.Query().Get("sendInitialEvents") != ""
	watches := r.URL.Query().Get("watch") != ""
	w.Header().Set("Content-Type", protobuf)
	switch {
	case r.Method != http.MethodGet:
		w.WriteHeader(http.StatusCreated)
		return
	case all && !a.streams:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		return
	case watches:
		name += ".stream"
		w.Header().Set("Content-Type", protobuf+";stream=watch")
	}
	if all || !watches {
		f, err := os.Open(filepath.Join(a.dir, name))
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		defer f.Close()
		_, _ = io.Copy(w, f)
	}
	w.(http.Flusher).Flush()
	if watches {
		<-r.Context().Done()
	}
}

// storeObjects writes 5,000 services of 100 endpoints each, and a node, as lists and as streams.
func storeObjects(b *testing.B) (dir string) {
	dir = b.TempDir()
	services, slices := manyObjects(5_000, 100)
	serviceList, sliceList := &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}
	var serviceObjects, sliceObjects []object.Object
	for _, s := range services {
		serviceList.Items, serviceObjects = append(serviceList.Items, *s), append(serviceObjects, s)
	}
	for _, s := range slices {
		sliceList.Items, sliceObjects = append(sliceList.Items, *s), append(sliceObjects, s)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	storeKind(b, filepath.Join(dir, "services"), serviceList, &corev1.Service{}, serviceObjects)
	storeKind(b, filepath.Join(dir, "endpointslices"), sliceList, &discoveryv1.EndpointSlice{}, sliceObjects)
	storeKind(b, filepath.Join(dir, "nodes"), &corev1.NodeList{Items: []corev1.Node{*node}}, &corev1.Node{}, []object.Object{node})
	return dir
}

// storeKind writes a list to a file, and a stream to another: frames of an event each, with
// the length in front.
func storeKind(b *testing.B, path string, list, end object.Object, all []object.Object) {
	scheme := newScheme()
	codec := wire.NewSerializer(scheme, scheme)
	encode := func(o object.Object) []byte {
		kinds, _, err := scheme.ObjectKinds(o)
		if err != nil {
			b.Fatal(err)
		}
		o.GetObjectKind().SetGroupVersionKind(kinds[0])
		var text bytes.Buffer
		if err := codec.Encode(o, &text); err != nil {
			b.Fatal(err)
		}
		return text.Bytes()
	}
	var stream []byte
	frame := func(kind watch.EventType, o object.Object) {
		event, err := (&metav1.WatchEvent{Type: string(kind), Object: object.RawExtension{Raw: encode(o)}}).Marshal()
		if err != nil {
			b.Fatal(err)
		}
		stream = append(binary.BigEndian.AppendUint32(stream, uint32(len(event))), event...)
	}
	for _, o := range all {
		frame(watch.Added, o)
	}
	end.(metav1.Object).SetResourceVersion("1")
	end.(metav1.Object).SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	frame(watch.Bookmark, end)
	for path, text := range map[string][]byte{path: encode(list), path + ".stream": stream} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			b.Fatal(err)
		}
	}
}
