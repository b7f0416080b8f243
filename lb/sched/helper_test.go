package sched

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// pool is backends for a test, 10.0.0.1:80 and on, with loads that count.
type pool struct {
	registry *flow.Registry
	backends []*Backend
}

func newPool(weights ...uint16) *pool {
	p := &pool{registry: flow.NewRegistry(flow.Options{})}
	for i, w := range weights {
		p.add(lb.Backend{Address: addrOf(i), Weight: w})
	}
	return p
}

func equalPool(n int) *pool {
	weights := make([]uint16, n)
	for i := range weights {
		weights[i] = 1
	}
	return newPool(weights...)
}

func (p *pool) add(b lb.Backend) *Backend {
	out := &Backend{Backend: &b, Load: p.registry.Acquire("web", b.Address)}
	p.backends = append(p.backends, out)
	return out
}

// open opens n flows on b.
func (p *pool) open(tb testing.TB, b *Backend, n int) []*flow.Record {
	tb.Helper()
	recs := make([]*flow.Record, n)
	for i := range recs {
		recs[i] = p.registry.Open(flow.Spec{Proto: flow.TCP, Service: "web", Client: client(i), Frontend: addrOf(0)})
		if !recs[i].Assign(flow.Assignment{Backend: b.Address, Load: b.Load}) {
			tb.Fatal("assign refused")
		}
	}
	return recs
}

// without is the pool's backends but for those at the given places.
func (p *pool) without(at ...int) []*Backend {
	var out []*Backend
next:
	for i, b := range p.backends {
		for _, a := range at {
			if a == i {
				continue next
			}
		}
		out = append(out, b)
	}
	return out
}

func addrOf(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).Next(), 80)
}

// client is one of many clients, every other one IPv6.
func client(i int) netip.AddrPort {
	if i%2 == 0 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, byte(i >> 16), byte(i >> 8), byte(i)}), uint16(1024+i%50000))
	}
	a := netip.MustParseAddr("fd00::").As16()
	a[13], a[14], a[15] = byte(i>>16), byte(i>>8), byte(i)
	return netip.AddrPortFrom(netip.AddrFrom16(a), uint16(1024+i%50000))
}

// name is the letter of a backend of the pool: a for 10.0.0.1.
func name(b *Backend) string {
	if b == nil {
		return "-"
	}
	a := b.Address.Addr().As4()
	return string(rune('a' + int(a[3]) - 1))
}

// picks is the letters of the next n choices.
func picks(tb testing.TB, s *Scheduler, n int, tried ...*Backend) string {
	tb.Helper()
	out := ""
	for i := range n {
		out += name(mustPick(tb, s, Request{Client: client(i), Tried: tried}))
	}
	return out
}

func mustPick(tb testing.TB, s *Scheduler, r Request) *Backend {
	tb.Helper()
	b, err := s.Pick(r)
	if err != nil {
		tb.Fatalf("pick for %s: %v", r.Client, err)
	}
	return b
}

// shares counts n choices by address, each for another client.
func shares(tb testing.TB, s *Scheduler, n int, tried ...*Backend) map[netip.AddrPort]int {
	tb.Helper()
	out := make(map[netip.AddrPort]int)
	for i := range n {
		out[mustPick(tb, s, Request{Client: client(i), Tried: tried}).Address]++
	}
	return out
}

// checkShares compares counts with what the weights ask for.
func checkShares(tb testing.TB, got map[netip.AddrPort]int, backends []*Backend, tolerance float64) {
	tb.Helper()
	total, weights := 0, 0
	for _, n := range got {
		total += n
	}
	for _, b := range backends {
		weights += int(b.Weight)
	}
	for _, b := range backends {
		want := float64(total) * float64(b.Weight) / float64(weights)
		if have := float64(got[b.Address]); have < want*(1-tolerance) || have > want*(1+tolerance) {
			tb.Errorf("%s of weight %d got %.0f of %d, want %.0f ± %.0f %%",
				b.Address, b.Weight, have, total, want, tolerance*100)
		}
	}
}

func eachAlgorithm(t *testing.T, f func(*testing.T, lb.Algorithm)) {
	for _, a := range lb.Algorithms {
		t.Run(string(a), func(t *testing.T) { f(t, a) })
	}
}

func ExampleScheduler() {
	web := newPool(3, 1)
	s := New(lb.RoundRobin, web.backends, Options{})
	for range 4 {
		b, err := s.Pick(Request{Client: netip.MustParseAddrPort("192.0.2.7:40000")})
		fmt.Println(b.Address, err)
	}
	// Output:
	// 10.0.0.1:80 <nil>
	// 10.0.0.1:80 <nil>
	// 10.0.0.2:80 <nil>
	// 10.0.0.1:80 <nil>
}
