package store

import (
	"context"
	"runtime"
	"testing"

	"github.com/baton-lb/baton/lb"
)

type nothing struct{}

func (nothing) Program(context.Context, Change) []Failure { return nil }

// running starts a store with a programmer that does nothing.
func running(b *testing.B) *Store {
	s := New(Options{})
	s.Register(Frontends, "nothing", nothing{})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		must(b, <-done)
	})
	return s
}

// 10,000 services with 25 backends each, from nothing to programmed: less than
// 2 s.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		s, list := running(b), many(10_000, 25)
		b.StartTimer()
		must(b, s.Source("file").Replace(list))
		must(b, s.Programmed(b.Context(), 1))
	}
}

// The same list again and again, as a source that re-synchronises every second
// hands it over.
func BenchmarkResync(b *testing.B) {
	s := running(b)
	must(b, s.Source("file").Replace(many(10_000, 25)))
	again := many(10_000, 25)
	for b.Loop() {
		must(b, s.Source("file").Replace(again))
	}
}

// One changed backend among 250,000, until it is programmed: less than 5 ms.
func BenchmarkChange(b *testing.B) {
	s := running(b)
	src := s.Source("file")
	must(b, src.Replace(many(10_000, 25)))
	svc := numbered(5000, 25)
	i := 0
	for b.Loop() {
		svc.Backends = append([]lb.Backend(nil), svc.Backends...)
		svc.Backends[7].Weight = uint16(1 + i%2)
		i++
		must(b, src.Upsert(svc))
		must(b, s.Programmed(b.Context(), s.Snapshot().Revision))
	}
}

// One changed backend of a service with 5,000.
func BenchmarkChangeLarge(b *testing.B) {
	s := running(b)
	src := s.Source("file")
	svc := numbered(1, 5000)
	i := 0
	for b.Loop() {
		svc.Backends = append([]lb.Backend(nil), svc.Backends...)
		svc.Backends[7].Weight = uint16(1 + i%2)
		i++
		must(b, src.Upsert(svc))
		must(b, s.Programmed(b.Context(), s.Snapshot().Revision))
	}
}

// Everything that is kept for 250,000 backends, the source's lists included:
// less than 500 B each.
func BenchmarkMemory(b *testing.B) {
	const services, backends = 10_000, 25
	for b.Loop() {
		before := heap()
		s := New(Options{})
		must(b, s.Source("file").Replace(many(services, backends)))
		b.ReportMetric(float64(heap()-before)/(services*backends), "B/backend")
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

// What the data path does for a connection: about 50 ns at most.
func BenchmarkLookup(b *testing.B) {
	s := New(Options{})
	must(b, s.Source("file").Replace(append(many(30_000, 1), service("any", "tcp://0.0.0.0:443"))))
	exact := make([]lb.FrontendKey, 4096)
	for i := range exact {
		exact[i] = numbered(i*7, 0).Frontends[0].FrontendKey
	}
	b.Run("frontend", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, ok := s.Snapshot().Frontend(exact[i%len(exact)]); !ok {
				b.Fatal("not found")
			}
		}
	})
	b.Run("wildcard", func(b *testing.B) {
		k := frontendKey("tcp://10.96.0.1:443")
		for b.Loop() {
			if _, ok := s.Snapshot().Frontend(k); !ok {
				b.Fatal("not found")
			}
		}
	})
	b.Run("service", func(b *testing.B) {
		for b.Loop() {
			if _, ok := s.Snapshot().Service("default/service-1234"); !ok {
				b.Fatal("not found")
			}
		}
	})
	b.Run("backend", func(b *testing.B) {
		svc, large := numbered(0, 25), New(Options{})
		must(b, large.Source("file").Upsert(svc))
		got, _ := large.Snapshot().Service(svc.Name)
		for i := 0; b.Loop(); i++ {
			if _, ok := got.Backend(svc.Backends[i%25].Address); !ok {
				b.Fatal("not found")
			}
		}
	})
}
