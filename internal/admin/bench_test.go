package admin

import (
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// BenchmarkListFlows writes a list of 10,000 flows.
func BenchmarkListFlows(b *testing.B) {
	r := flow.NewRegistry(flow.Options{})
	began := time.Now()
	for i := range 10_000 {
		r.Open(flow.Spec{
			Proto: flow.TCP, Service: "web", Frontend: netip.MustParseAddrPort("10.96.0.10:80"),
			Client:    netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 4711),
			StartedAt: began.Add(time.Duration(i*7919%10_000) * time.Millisecond),
		})
	}
	s := &Server{o: Options{Registry: r}}
	b.ReportAllocs()
	for b.Loop() {
		if err := writeList(io.Discard, "flows", s.flows(&Filter{}, false)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFilter matches a flow against one of every kind of filter.
func BenchmarkFilter(b *testing.B) {
	spec := FilterSpec{
		Service: []string{"web"}, Client: []string{"10.0.0.0/8"}, Backend: []string{"10.202.0.0/16"},
		Frontend: []string{"tcp://10.96.0.10:80"}, Protocol: []string{"tcp"}, Path: []string{"userspace"},
		State: []string{"established"},
	}
	f, err := spec.Parse()
	if err != nil {
		b.Fatal(err)
	}
	v := endedView()
	v.State = flow.Established
	b.ReportAllocs()
	for b.Loop() {
		if !f.Match(v) {
			b.Fatal("no match")
		}
	}
}
