package sched

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/baton-lb/baton/lb"
)

// mixed is a pool of n backends, with the same weights or different ones.
func mixed(n int, weighted bool) *pool {
	weights := ones(n)
	for i := range weights {
		if weighted {
			weights[i] = uint16(1 + i%7)
		}
	}
	return newPool(weights...)
}

func eachSize(b *testing.B, f func(*testing.B, lb.Algorithm, *pool)) {
	for _, a := range lb.Algorithms {
		for _, n := range []int{3, 25, 1000} {
			for _, weighted := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/backends=%d/weighted=%v", a, n, weighted), func(b *testing.B) {
					f(b, a, mixed(n, weighted))
				})
			}
		}
	}
}

func BenchmarkPick(b *testing.B) {
	eachSize(b, func(b *testing.B, a lb.Algorithm, p *pool) {
		s := New(a, p.backends, Options{})
		r := Request{Client: client(7)}
		b.ReportAllocs()
		for b.Loop() {
			_, _ = s.Pick(r)
		}
	})
}

func BenchmarkPickParallel(b *testing.B) {
	eachSize(b, func(b *testing.B, a lb.Algorithm, p *pool) {
		s := New(a, p.backends, Options{})
		b.RunParallel(func(pb *testing.PB) {
			r := Request{Client: client(7)}
			for pb.Next() {
				_, _ = s.Pick(r)
			}
		})
	})
}

// BenchmarkNew is one reload of a service in which one backend has changed.
func BenchmarkNew(b *testing.B) {
	eachSize(b, func(b *testing.B, a lb.Algorithm, p *pool) {
		o := Options{Previous: New(a, p.without(1), Options{})}
		b.ReportAllocs()
		for b.Loop() {
			New(a, p.backends, o)
		}
	})
}

// BenchmarkServices makes the schedulers of 10,000 services of 25 backends and
// reports what each backend costs in memory.
func BenchmarkServices(b *testing.B) {
	for _, a := range lb.Algorithms {
		b.Run(string(a), func(b *testing.B) {
			p := mixed(25, true)
			schedulers := make([]*Scheduler, 10_000)
			var before, after runtime.MemStats
			for b.Loop() {
				clear(schedulers)
				runtime.GC()
				runtime.ReadMemStats(&before)
				for i := range schedulers {
					schedulers[i] = New(a, p.backends, Options{})
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/10_000/25, "B/backend")
		})
	}
}
