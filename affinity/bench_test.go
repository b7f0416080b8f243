package affinity

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

func filled(n int) *Table {
	tab := New(Options{Max: n})
	for i := range n {
		tab.Set(client(i), backend(i%25), at(time.Duration(i)))
	}
	return tab
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint("clients=", n), func(b *testing.B) {
			tab, i := filled(n), 0
			b.ReportAllocs()
			for b.Loop() {
				tab.Get(client(i%n), at(time.Hour), 3*time.Hour)
				i += 7919
			}
		})
	}
}

func BenchmarkSet(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint("clients=", n), func(b *testing.B) {
			tab, i := filled(n), 0
			b.ReportAllocs()
			for b.Loop() {
				tab.Set(client(i%n), backend(1), at(time.Hour))
				i += 7919
			}
		})
	}
}

// BenchmarkEvict is a flood of clients that are never seen again.
func BenchmarkEvict(b *testing.B) {
	const n = 100_000
	tab, i := filled(n), n
	b.ReportAllocs()
	for b.Loop() {
		tab.Set(client(i), backend(1), at(time.Hour))
		i++
	}
}

// BenchmarkParallel is what two or more accept loops do for each flow.
func BenchmarkParallel(b *testing.B) {
	const n = 100_000
	tab := filled(n)
	var seed atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		i := int(seed.Add(1)) * 12345
		for pb.Next() {
			c := client(i % n)
			tab.Get(c, at(time.Hour), 3*time.Hour)
			tab.Set(c, backend(1), at(time.Hour))
			i += 7919
		}
	})
}

// BenchmarkParallelSharded is what shards would gain.
func BenchmarkParallelSharded(b *testing.B) {
	const n, shards = 100_000, 16
	var tabs [shards]*Table
	for s := range tabs {
		tabs[s] = New(Options{Max: n / shards * 2})
	}
	for i := range n {
		tabs[i%shards].Set(client(i), backend(i%25), at(time.Duration(i)))
	}
	var seed atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		i := int(seed.Add(1)) * 12345
		for pb.Next() {
			c, tab := client(i%n), tabs[i%n%shards]
			tab.Get(c, at(time.Hour), 3*time.Hour)
			tab.Set(c, backend(1), at(time.Hour))
			i += 7919
		}
	})
}

// BenchmarkMemory reports the bytes per entry of a full table.
func BenchmarkMemory(b *testing.B) {
	const n = 200_000
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		tab := filled(n)
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(tab)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/entry")
}
