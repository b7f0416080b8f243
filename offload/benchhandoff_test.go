package offload_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/offload"
)

// What a handoff costs: the flow that is handed off, the processor, and the peers. An
// iteration is a whole batch of flows, made, handed off and ended. The figures are
// reported, and none of them fails.
func BenchmarkHandoff(b *testing.B) {
	const flows = 500
	b.Run("idle, in turn", func(b *testing.B) {
		benchmarkIdle(b, flows, func(w *world, ids []flow.ID) {
			for _, id := range ids[:50] { // of those that are there: each waits for two grace periods
				w.handOff(id)
			}
		})
	})
	b.Run("idle, at once", func(b *testing.B) {
		benchmarkIdle(b, flows, func(w *world, ids []flow.ID) {
			var all sync.WaitGroup
			for _, id := range ids {
				all.Go(func() { w.handOff(id) })
			}
			all.Wait()
		})
	})
	b.Run("ping-pong", func(b *testing.B) { benchmarkBusy(b, 16, testnet.Echo, pingPong) })
	b.Run("bulk, up", func(b *testing.B) { benchmarkBusy(b, 4, testnet.Sink, fill) })
	b.Run("bulk, down", func(b *testing.B) { benchmarkBusy(b, 4, func(c net.Conn) { fill(c, nil) }, drink) })
}

// costs is what the handoffs of a benchmark have cost so far.
type costs struct {
	w            *world
	tried, done  int           // handoffs
	cpu          time.Duration // of the process, without load
	thread       time.Duration // of the thread that handoffs are made on
	timeouts     uint64        // of retransmission, at the peers
	before       costSample
	longest      atomic.Int64 // exchange, in ns
	freezeMu     sync.Mutex
	frozen       []time.Duration // guarded by freezeMu
	threadIsSeen bool
}

type costSample struct {
	cpu, thread time.Duration
	timeouts    uint64
	results     map[flow.HandoffResult]int
}

func newCosts(b *testing.B) *costs {
	c := &costs{}
	c.w = bpfWorld(b, func(o *offload.Options) {
		o.ObserveFreeze = func(d time.Duration) {
			c.freezeMu.Lock()
			defer c.freezeMu.Unlock()
			c.frozen = append(c.frozen, d)
		}
	})
	return c
}

func (c *costs) sample() costSample {
	s := costSample{results: c.w.resultsSoFar()}
	s.thread, c.threadIsSeen = handoffThreadCPU()
	for _, h := range []*testnet.Host{c.w.star.Client, c.w.star.Backends[0]} {
		s.timeouts += tcpTimeouts(c.w.t, h)
	}
	return s
}

func (c *costs) begin() {
	c.before = c.sample()
	c.before.cpu = processCPU() // what the look itself has used does not count
}

// end adds what has happened since begin, and returns the CPU time of the process.
func (c *costs) end() time.Duration {
	used := processCPU() - c.before.cpu
	now := c.sample()
	for r, n := range now.results {
		n -= c.before.results[r]
		c.tried += n
		if r == flow.HandoffDone {
			c.done += n
		}
	}
	c.thread += now.thread - c.before.thread
	c.timeouts += now.timeouts - c.before.timeouts
	return used
}

func (c *costs) report(b *testing.B) {
	micro := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	c.freezeMu.Lock()
	defer c.freezeMu.Unlock()
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for name, all := range map[string][]time.Duration{"freeze": c.frozen, "stood": c.w.stood} {
		if len(all) == 0 {
			continue
		}
		slices.Sort(all)
		b.ReportMetric(micro(all[len(all)/2]), name+"-p50-µs")
		b.ReportMetric(micro(all[(len(all)*99+99)/100-1]), name+"-p99-µs")
	}
	b.ReportMetric(float64(c.done)/float64(b.N), "handoffs/op")
	b.ReportMetric(float64(c.timeouts), "RTOs")
	if c.done == 0 {
		return
	}
	b.ReportMetric(float64(c.tried)/float64(c.done), "attempts/handoff")
	if c.threadIsSeen {
		b.ReportMetric(micro(c.thread)/float64(c.done), "thread-µs/handoff")
	}
	if c.cpu > 0 {
		b.ReportMetric(micro(c.cpu)/float64(c.done), "cpu-µs/handoff")
	}
	if ns := c.longest.Load(); ns > 0 {
		b.ReportMetric(float64(ns)/1e6, "longest-exchange-ms")
	}
}

// handOff has a flow handed off, whenever that may be.
func (w *world) handOff(id flow.ID) {
	if r, why, err := w.o.Handoff(id); r != flow.HandoffDone {
		w.t.Logf("flow %s: %s, %s, %v", id, r, why, err)
	}
}

// benchmarkIdle has flows handed off that have said something once. Nothing but the
// handoffs runs, so that what the process uses is theirs: the thread, the attempts,
// the relay that stops, the peers' answers to probes. What it uses when nothing is
// handed off, over the same time, does not count.
func benchmarkIdle(b *testing.B, n int, handOff func(*world, []flow.ID)) {
	c := newCosts(b)
	c.w.offload(lb.Offload{Mode: lb.OffloadAuto, AfterAge: time.Hour, AfterBytes: 1 << 40})
	c.w.star.Backends[0].Serve(backendPort, testnet.Echo)
	for b.Loop() {
		b.StopTimer()
		conns := c.connect(n)
		for _, conn := range conns {
			if err := exchange(conn, 100); err != nil {
				b.Fatal(err)
			}
		}
		ids := c.ids()
		b.StartTimer()
		c.begin()
		begun := time.Now()
		handOff(c.w, ids)
		took := time.Since(begun)
		used := c.end()
		b.StopTimer()
		c.cpu += used - cpuOfNothing(took)
		c.close(conns)
		b.StartTimer()
	}
	c.report(b)
}

func cpuOfNothing(d time.Duration) time.Duration {
	before := processCPU()
	time.Sleep(d)
	return processCPU() - before
}

// benchmarkBusy has flows handed off by the policy that never rest by themselves. What
// the handoffs take of the processor cannot be told from what the load does, which
// goes on faster once they are done, but for the thread that only they have.
func benchmarkBusy(b *testing.B, n int, serve func(net.Conn), use func(net.Conn, *costs)) {
	c := newCosts(b)
	c.w.offload(lb.Offload{Mode: lb.OffloadAuto, AfterAge: 50 * time.Millisecond, AfterBytes: 1000})
	c.w.star.Backends[0].Serve(backendPort, serve)
	for b.Loop() {
		c.begin()
		conns := c.connect(n)
		var all sync.WaitGroup
		for _, conn := range conns {
			all.Go(func() { use(conn, c) })
		}
		c.waitOffloaded(n, 2500*time.Millisecond)
		time.Sleep(300 * time.Millisecond) // a timeout of retransmission has come by then
		c.end()
		b.StopTimer()
		c.close(conns)
		all.Wait()
		b.StartTimer()
	}
	c.report(b)
}

// pingPong sends a byte whenever one has come back, until the connection is closed.
func pingPong(conn net.Conn, c *costs) {
	one := make([]byte, 1)
	for {
		at := time.Now()
		if _, err := conn.Write(one); err != nil {
			return
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			return
		}
		took := int64(time.Since(at))
		for was := c.longest.Load(); took > was && !c.longest.CompareAndSwap(was, took); was = c.longest.Load() {
		}
	}
}

// fill sends as fast as it goes, until the connection is closed.
func fill(conn net.Conn, _ *costs) {
	b := make([]byte, 64<<10)
	for {
		if _, err := conn.Write(b); err != nil {
			return
		}
	}
}

func drink(conn net.Conn, _ *costs) { testnet.Sink(conn) }

func (c *costs) connect(n int) []net.Conn {
	conns := make([]net.Conn, n)
	for i := range conns {
		conn, err := c.w.star.Client.Dial("tcp", netip.AddrPortFrom(vips[i%len(vips)], vipPort))
		if err != nil {
			c.w.t.Fatal(err)
		}
		conns[i] = conn
	}
	return conns
}

func (c *costs) ids() []flow.ID {
	var ids []flow.ID
	for _, r := range c.w.registry.Records() {
		ids = append(ids, r.ID())
	}
	return ids
}

func (c *costs) waitOffloaded(n int, atMost time.Duration) {
	for until := time.Now().Add(atMost); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if c.w.o.Flows() >= n {
			return
		}
	}
}

// close ends connections by a reset, so that nothing of them is left.
func (c *costs) close(conns []net.Conn) {
	c.w.t.Helper()
	for _, conn := range conns {
		testnet.Reset(conn)
	}
	testnet.Eventually(c.w.t, patience, "all flows have ended", func() error {
		if left := c.w.registry.Len(); left > 0 {
			return fmt.Errorf("%d have not", left)
		}
		return nil
	})
}

func processCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
