package health

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// discard takes verdicts and does nothing.
type discard struct{}

func (discard) SetHealth(string, netip.AddrPort, store.Health) {}

// still is a checker whose clock stands still, with n backends in services of
// three, as a lookup for follow.
func still(b *testing.B, n int) (c *Checker, names []string, to lookup) {
	b.Helper()
	s := store.New(store.Options{})
	var all []lb.Service
	for i := range n / 3 {
		svc := named(fmt.Sprint("svc-", i), 1, 0)
		svc.Frontends[0].Address = netip.AddrPortFrom(addr(i).Addr(), 81)
		for j := range 3 {
			svc.Backends = append(svc.Backends, lb.Backend{Address: addr(3*i + j), Weight: 1})
		}
		all = append(all, svc)
		names = append(names, svc.Name)
	}
	if err := s.Source("file").Replace(all); err != nil {
		b.Fatal(err)
	}
	published := make(map[string]*store.Service)
	for svc := range s.Snapshot().Services() {
		changed := *svc
		changed.Health = lb.DefaultHealth(lb.ProbeTCP)
		published[svc.Name] = &changed
	}
	c = newChecker(Options{Store: discard{}}, func(context.Context, target) outcome { return passed })
	if err := c.Close(); err != nil { // the benchmark does what run would do
		b.Fatal(err)
	}
	c.ctx = context.Background()
	return c, names, func(name string) (*store.Service, bool) { svc, ok := published[name]; return svc, ok }
}

// BenchmarkProbe is everything about one probe of one of so many backends but
// the probe itself: its alarm, its place, its answer, its next time.
func BenchmarkProbe(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("backends=%d", n), func(b *testing.B) {
			c, names, to := still(b, n)
			c.follow(names, to, to)
			b.ReportAllocs()
			for b.Loop() {
				c.mu.Lock()
				a := c.alarms[0]
				c.alarms.remove(a)
				c.running++
				j := c.begin(a.backend)
				c.mu.Unlock()
				j.began = a.at // as if the clock had come so far
				_, _ = c.finish(j, c.ask(j))
			}
		})
	}
}

// BenchmarkFollow is a change of one service among 10,000 backends.
func BenchmarkFollow(b *testing.B) {
	c, names, to := still(b, 10_000)
	c.follow(names, to, to)
	b.ReportAllocs()
	for b.Loop() {
		c.follow(names[:1], to, to)
	}
}

// BenchmarkFollowAll is the first round, and a round that names everything.
func BenchmarkFollowAll(b *testing.B) {
	c, names, to := still(b, 10_000)
	c.follow(names, to, to)
	b.ReportAllocs()
	for b.Loop() {
		c.follow(names, to, to)
	}
}

// BenchmarkSecond is seconds in the life of 10,000 backends with an interval of
// 2 s and a probe that answers at once: how much of a core that takes.
func BenchmarkSecond(b *testing.B) {
	c, names, to := still(b, 10_000)
	live := newChecker(Options{Store: discard{}}, c.probe)
	defer live.Close()
	live.follow(names, to, to)
	before, began := cpuTime(b), time.Now()
	for b.Loop() {
		time.Sleep(time.Second)
	}
	spent := cpuTime(b) - before
	b.ReportMetric(100*float64(spent)/float64(time.Since(began)), "%core")
	total := uint64(0)
	for _, n := range live.Stats().Probes {
		total += n
	}
	b.ReportMetric(float64(total)/time.Since(began).Seconds(), "probes/s")
}

func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTCP is a whole probe over loopback, both ends of it.
func BenchmarkTCP(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := testnet.ServeListener(ln, testnet.Sink)
	defer s.Close()
	p := &prober{dial: dialContext}
	t := target{newCheck(lb.DefaultHealth(lb.ProbeTCP)), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port)}
	b.ReportAllocs()
	for b.Loop() {
		if got := p.probe(b.Context(), t); got != passed {
			b.Fatalf("%+v", got)
		}
	}
}
