package offload_test

import (
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/offload"
	"github.com/baton-lb/baton/offload/offloadtest"
)

// nothing is a pair that no attempt is made for.
type nothing struct{ handoff.Pair }

// What a flow pays that is dialled and gone again before it was to be offloaded, and
// what one pays that is watched from the start.
func BenchmarkPrepare(b *testing.B) {
	for _, bb := range []struct {
		name   string
		kernel func(*testnet.Star) offload.Kernel
		mode   lb.OffloadMode
	}{
		{"auto", func(*testnet.Star) offload.Kernel { return offloadtest.New(1000) }, lb.OffloadAuto},
		{"watched, in memory", func(*testnet.Star) offload.Kernel { return offloadtest.New(1000) }, lb.OffloadAlways},
		{"watched", func(s *testnet.Star) offload.Kernel { return openBPF(b, s, "") }, lb.OffloadAlways},
	} {
		b.Run(bb.name, func(b *testing.B) {
			w := newWorld(b, bb.kernel)
			w.offload(lb.Offload{Mode: lb.OffloadNever})
			w.star.Backends[0].Serve(backendPort, testnet.Hold)
			p := w.pair(w.connect(vips[0]))
			r := w.request(p, w.backend(vips[0]))
			r.Policy = lb.Offload{Mode: bb.mode, AfterBytes: 1 << 40, AfterAge: time.Hour}
			b.ReportAllocs()
			for b.Loop() {
				l, why := w.o.Prepare(r)
				if l == nil {
					b.Fatal(why)
				}
				if bb.mode == lb.OffloadAuto {
					l.Offer(nothing{})
				}
				l.Release(flow.ReasonClosed)
			}
		})
	}
}
