package relay

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
)

// BenchmarkOneService adds a service with an address of its own to as many as said. It is
// taken away again beside the clock: what that costs is a look at all connections.
func BenchmarkOneService(b *testing.B) {
	for _, n := range []int{5_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := newWorld(b, Options{Capture: capture.SKLookup, Guard: newFakeGuard()})
			at := func(i int) lb.Service {
				vip := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)}), 80)
				return service(fmt.Sprintf("s%d", i), vip, netip.MustParseAddrPort("127.0.0.1:8080"))
			}
			all := make([]lb.Service, n)
			for i := range all {
				all[i] = at(i)
			}
			w.serve(all...)
			w.source.Synced()
			programmed := func(err error) {
				b.Helper()
				if err == nil {
					err = w.store.Programmed(context.Background(), w.store.Snapshot().Revision)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				programmed(w.source.Upsert(at(n)))
				b.StopTimer()
				w.source.Delete(at(n).Name)
				programmed(nil)
				b.StartTimer()
			}
		})
	}
}
