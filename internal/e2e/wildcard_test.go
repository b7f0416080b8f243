package e2e

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
)

// A frontend at the wildcard address and one at an address of its own share a
// port, in whatever order they come: the most exact one is meant.
func TestWildcardBesideExact(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.serveNamed()
		any := "0.0.0.0"
		if w.v6 {
			any = "[::]"
		}
		wild := fmt.Sprintf("  - name: wild\n    frontends: [\"tcp://%s:80\"]\n    backends: [%q]\n", any, w.backend(0))
		exact := fmt.Sprintf("  - name: exact\n    frontends: [\"tcp://%s\"]\n    backends: [%q]\n", w.vip, w.backend(1))
		own := netip.AddrPortFrom(w.addr(w.Balancer), 80)
		check := func(vip, other string) {
			t.Helper()
			eventually(t, "the right service answers", func() error {
				if got, err := w.Client.AskName(w.vip); err != nil || got != vip {
					return fmt.Errorf("at the VIP: %q, %v", got, err)
				}
				if got, err := w.Client.AskName(own); err != nil || got != other {
					return fmt.Errorf("at another address: %q, %v", got, err)
				}
				return nil
			})
		}
		names := []string{w.Backends[0].Name(), w.Backends[1].Name()}
		for _, first := range []string{wild, exact} {
			b := start(t, w.Balancer, "services:\n"+first)
			b.configure("services:\n" + wild + exact)
			check(names[1], names[0])
			_ = b.stop(syscall.SIGTERM)
		}
	})
}
