package kube

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/baton-lb/baton/lb/store"
)

// manyObjects is as many Services as said, each with a node port and endpoints in
// slices of 100. The objects are as the API's client makes them: nothing in them
// is shared.
func manyObjects(services, endpoints int) (list []*corev1.Service, all []*discoveryv1.EndpointSlice) {
	for i := range services {
		name := fmt.Sprintf("service-%d", i)
		s := service(name, fmt.Sprintf("type: NodePort, clusterIP: 10.%d.%d.%d, ports: [{name: http, port: 80, nodePort: %d}]", 96+i>>16, i>>8&255, i&255, 10000+i))
		list = append(list, s)
		for from := 0; from < endpoints; from += 100 {
			all = append(all, slice(fmt.Sprintf("%s-%d", name, from), name, "http 8080", addresses(i*endpoints+from, min(100, endpoints-from))...))
		}
	}
	return list, all
}

// addresses are n from 16.0.0.0 on, each on one of 5,000 nodes in three zones.
func addresses(from, n int) (all []string) {
	for i := from; i < from+n; i++ {
		all = append(all, fmt.Sprintf("%d.%d.%d.%d node-%d zone=z%d", 16+i>>24, i>>16&255, i>>8&255, i&255, i%5000, i%3))
	}
	return all
}

type noProgrammer struct{}

func (noProgrammer) Program(context.Context, store.Change) []store.Failure { return nil }

// running is a store that has all it is given programmed into nothing.
func running(b *testing.B) *store.Store {
	s := store.New(store.Options{})
	s.Register(store.Frontends, "nothing", noProgrammer{})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return s
}

// programmed gives what has changed to a store and waits until it is in force.
func programmed(b *testing.B, t *Translator, s *store.Store) {
	b.Helper()
	c := t.Take()
	if err := s.Source("kube").Apply(c.Upsert, c.Delete); err != nil {
		b.Fatal(err)
	}
	if err := s.Programmed(b.Context(), s.Snapshot().Revision); err != nil {
		b.Fatal(err)
	}
	if len(c.Faults) > 0 {
		b.Fatal(c.Faults[0])
	}
}

func read(t *Translator, services []*corev1.Service, all []*discoveryv1.EndpointSlice) {
	t.SetNode(ReadNode(here()))
	for _, s := range services {
		x, _ := ReadService(s)
		t.SetService(x)
	}
	for _, s := range all {
		x, _ := ReadSlice(s)
		t.SetSlice(x)
	}
}

var sizes = []struct{ services, endpoints int }{{5_000, 100}, {10_000, 25}}

// From objects in memory to programmed: less than 10 s.
func BenchmarkStart(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			services, all := manyObjects(size.services, size.endpoints)
			for b.Loop() {
				t, s := NewTranslator(Options{Node: "node-1"}), running(b)
				read(t, services, all)
				programmed(b, t, s)
			}
		})
	}
}

// One endpoint stops being ready or comes back, until it is programmed: less
// than 20 ms.
func BenchmarkOneEndpoint(b *testing.B) {
	for _, size := range append(sizes, struct{ services, endpoints int }{100, 5000}) {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			services, all := manyObjects(size.services, size.endpoints)
			t, s := NewTranslator(Options{Node: "node-1"}), running(b)
			read(t, services, all)
			programmed(b, t, s)
			runtime.GC()
			changed := all[len(all)/2]
			var took []time.Duration
			for ready := false; b.Loop(); ready = !ready {
				start, now := time.Now(), ready
				changed.Endpoints[7].Conditions.Ready, changed.Endpoints[7].Conditions.Serving = &now, &now
				x, _ := ReadSlice(changed)
				t.SetSlice(x)
				programmed(b, t, s)
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// What is kept for 500,000 endpoints, by the informers' caches, the translator
// and the store together: less than 1 GiB.
func BenchmarkMemory(b *testing.B) {
	const services, endpoints = 5_000, 100
	for b.Loop() {
		before := heap()
		t, s := NewTranslator(Options{Node: "node-1"}), running(b)
		list, all := manyObjects(services, endpoints)
		read(t, list, all)
		list, all = nil, nil
		programmed(b, t, s)
		after := heap()
		b.ReportMetric(float64(after-before)/(services*endpoints), "B/endpoint")
		b.ReportMetric(float64(after-before)/(1<<20), "MiB")
		runtime.KeepAlive(t)
		runtime.KeepAlive(s)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
