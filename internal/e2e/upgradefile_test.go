package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// The old process goes on following its file: the flows that it keeps are treated as
// onBackendRemoved says.
func TestUpgradeOldProcessFollowsItsFile(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.offload = inUserspace
		w.serveNamed()
		const policy = "onBackendRemoved: reset"
		b := start(t, w.Balancer, w.service(nil, policy))
		removed, kept := w.at(t, 0), w.at(t, 1)
		next := b.upgrade(w, w.service(nil, policy))
		b.configure(w.service(w.without(0), policy))
		removed.wasReset(t)
		wantEnd(t, b.upgraded().endedOf(removed.LocalAddr()), flow.ByBaton, flow.ReasonBackendRemoved)
		kept.works(t)
		for range 4 {
			w.who(t) // the new one has a file of its own, and both backends
		}
		if n := len(next.backends()); n != 2 {
			t.Errorf("the new process has %d backends", n)
		}
		kept.ends(t)
		b.exits(10 * time.Second)
	})
}

// Many frontends with sockets of their own go over too, and what waits there.
func TestUpgradeOfManyFrontends(t *testing.T) {
	const tcp, udp = 600, 200
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		serveUDP(t, w.Backends[0], w.backend(0), echo)
		at := func(i int) netip.AddrPort { return netip.AddrPortFrom(w.vip.Addr(), uint16(1000+i)) }
		var text strings.Builder
		fmt.Fprintf(&text, "capture: anyip\nservices:\n")
		for name, n := range map[string]int{"tcp": tcp, "udp": udp} {
			fmt.Fprintf(&text, "  - name: %s\n    backends: [\"%s\"]\n    frontends:\n", name, w.backend(0))
			for i := range n {
				fmt.Fprintf(&text, "      - \"%s://%s\"\n", name, at(i))
			}
		}
		b := start(t, w.Balancer, text.String())
		c := w.udp(t, at(udp-1))
		if _, err := exchange(c, []byte("x")); err != nil {
			t.Fatal(err)
		}
		l := w
		l.vip = at(tcp - 1)
		load := l.load(t, 2)
		load.more(t, 20)
		next := b.upgrade(w, text.String())
		load.more(t, 20)
		load.end(t)
		b.exits(20 * time.Second)
		for _, i := range []int{0, tcp / 2, tcp - 1} {
			if _, err := w.Client.AskName(at(i)); err != nil {
				t.Errorf("frontend %d: %v", i, err)
			}
		}
		if got, err := exchange(c, []byte("y")); err != nil || string(got) != "y" {
			t.Errorf("UDP: %q, %v", got, err)
		}
		var services struct {
			Services []struct {
				Frontends []struct{ Status, Reason string }
			}
		}
		testnet.Eventually(t, 10*time.Second, "every frontend is ready", func() error {
			if err := next.get("/v1/services", &services); err != nil {
				return err
			}
			for _, s := range services.Services {
				for _, fe := range s.Frontends {
					if fe.Status != "ready" {
						return fmt.Errorf("%+v", fe)
					}
				}
			}
			return nil
		})
	})
}
