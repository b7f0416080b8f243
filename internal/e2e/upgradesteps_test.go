package e2e

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/admin/client"
	"github.com/baton-lb/baton/internal/testnet"
)

// step is a message of an upgrade, as far as a test cares.
type step struct {
	Step  string `json:"step"`
	Error string `json:"error,omitempty"`
}

// takes takes what the old process sends until it comes to a step.
func takes(t *testing.T, p *admin.Pipe, last string) {
	t.Helper()
	for {
		var m step
		fds, err := p.Receive(&m)
		for _, fd := range fds {
			unix.Close(fd)
		}
		if err != nil {
			t.Fatalf("before %q: %v", last, err)
		}
		if m.Step == last {
			return
		}
		say(t, p, "taken")
	}
}

func say(t *testing.T, p *admin.Pipe, what string) {
	t.Helper()
	if err := p.Send(step{Step: what}); err != nil {
		t.Fatalf("say %q: %v", what, err)
	}
}

// A process that takes over and goes away, says something else or fails, at each step
// there is: the old one goes on with everything.
func TestUpgradeGivenUp(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		serveUDP(t, w.Backends[0], w.backend(0), echo)
		b := start(t, w.Balancer, w.service(nil)+udpBeside(w))
		kept, _ := w.named(t)
		udp := w.udp(t, w.vip)
		works := func(when string) {
			t.Helper()
			kept.works(t)
			w.who(t)
			if got, err := exchange(udp, []byte("x")); err != nil || string(got) != "x" {
				t.Errorf("%s: UDP: %q, %v", when, got, err)
			}
			testnet.Eventually(t, 10*time.Second, "it is over", func() error {
				if page, err := b.text("/readyz"); err != nil {
					return fmt.Errorf("%s: %w", page, err)
				}
				return nil
			})
		}
		works("before")
		for i, when := range []string{"at once", "after the offer", "when it is ready", "when UDP stands still"} {
			for _, how := range []string{"closes", "fails", "speaks nonsense"} {
				c := client.New(b.socket())
				p, err := c.Upgrade(t.Context(), admin.UpgradeRequest{Protocol: admin.UpgradeProtocol, Version: "v9", StateDir: b.dir})
				if err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				if i > 0 {
					say(t, p, "begin")
					takes(t, p, "offered")
				}
				if i == 2 { // the answer is not waited for
					say(t, p, "ready")
				}
				if i == 3 {
					say(t, p, "ready")
					takes(t, p, "paused")
				}
				switch how {
				case "fails":
					_ = p.Send(step{Step: "failed", Error: "out of luck"})
				case "speaks nonsense":
					_ = p.Send(step{Step: "nonsense"})
				}
				_ = p.Close()
				c.Close()
				testnet.Eventually(t, 10*time.Second, "it says so", func() error {
					if b.logged("serving goes on here") == 0 || b.logged("takes over") != b.logged("serving goes on here") {
						return fmt.Errorf("the log:\n%s", b.log)
					}
					return nil
				})
				works(when + ", it " + how)
			}
		}
		b.cliWorks(w)
		next := b.upgrade(w, w.service(nil)+udpBeside(w))
		kept.ends(t)
		b.exits(10 * time.Second)
		b = next
		kept, _ = w.named(t)
		works("after an upgrade")
	})
}

// udpBeside is a UDP service at the VIP, to be written after one of TCP.
func udpBeside(w world) string {
	return fmt.Sprintf("  - name: dns\n    frontends: [\"udp://%s\"]\n    backends: [\"%s\"]\n", w.vip, w.backend(0))
}
