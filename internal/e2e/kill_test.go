package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// kill -9 under a load of new connections, and a file that changes while no process is
// there: the next one serves what it says, and nothing of before.
func TestKilledUnderLoad(t *testing.T) {
	bothFamilies(t, 3, func(t *testing.T, w world) {
		w.serveNamed()
		old := w
		b := start(t, w.Balancer, w.service(nil, inKernel))
		kept, _ := w.named(t)
		b.carriedBy(flow.PathBPF, netip.MustParseAddrPort(kept.LocalAddr().String()))
		l := w.load(t, 4)
		l.more(t, 200)
		_ = b.stop(syscall.SIGKILL)
		l.halt()
		kept.works(t)
		if err := w.refused(t, w.Client); err != nil {
			t.Errorf("while no process is there: %v", err)
		}
		w.vip = netip.AddrPortFrom(w.vip.Addr().Next(), w.vip.Port())
		again := launchIn(t, w.Balancer, b.dir, w.service(w.without(2), inKernel))
		again.waitServing()
		l = w.load(t, 4)
		l.more(t, 200)
		l.end(t)
		if _, err := old.Client.AskName(old.vip); err == nil {
			t.Error("the VIP of before still answers")
		}
		if n := len(again.backends()); n != 2 {
			t.Errorf("%d backends", n)
		}
		kept.works(t)
		kept.ends(t)
		eventually(t, "only the VIP of now has a route", func() error {
			if routes := vipRoutes(t, w.Balancer); len(routes) != 1 || !strings.Contains(routes[0], w.vip.Addr().String()) {
				return fmt.Errorf("routes: %v", routes)
			}
			return nil
		})
	})
}

// A backend that went while no process was there: its flows in the kernel are treated
// as its service says.
func TestKilledAndBackendGone(t *testing.T) {
	for _, policy := range []string{"keep", "drain", "reset"} {
		t.Run(policy, func(t *testing.T) {
			bothFamilies(t, 2, func(t *testing.T, w world) {
				w.serveNamed()
				says := []string{inKernel, "onBackendRemoved: " + policy, "drainTimeout: 1s"}
				b := start(t, w.Balancer, w.service(nil, says...))
				c := w.at(t, 0)
				b.carriedBy(flow.PathBPF, netip.MustParseAddrPort(c.LocalAddr().String()))
				_ = b.stop(syscall.SIGKILL)
				began := time.Now()
				again := launchIn(t, w.Balancer, b.dir, w.service(w.without(0), says...))
				again.waitServing()
				switch policy {
				case "keep":
					c.works(t)
					c.ends(t)
				case "drain":
					c.wasReset(t)
					if d := time.Since(began); d < time.Second {
						t.Errorf("it had only %v", d)
					}
					wantEnd(t, again.endedOf(c.LocalAddr()), flow.ByBaton, flow.ReasonDrainTimeout)
				case "reset":
					c.wasReset(t)
					wantEnd(t, again.endedOf(c.LocalAddr()), flow.ByBaton, flow.ReasonBackendRemoved)
				}
			})
		})
	}
}

// Flows of another version: the start and the upgrade are refused, with both ways out.
func TestOtherVersionInTheKernel(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, inKernel))
		kept, _ := w.named(t)
		b.carriedBy(flow.PathBPF, netip.MustParseAddrPort(kept.LocalAddr().String()))
		sets, err := filepath.Glob(filepath.Join(b.dir, "bpf", "net-*", "flows-*"))
		if err != nil || len(sets) != 1 {
			t.Fatalf("sets of pins: %v, %v", sets, err)
		}
		other := filepath.Join(filepath.Dir(sets[0]), "flows-99")
		if err := os.Rename(sets[0], other); err != nil {
			t.Fatal(err)
		}
		waysOut := []string{"another version", "run the version that they belong to", "baton cleanup"}
		next := b.successor(w.Balancer, w.service(nil, inKernel))
		next.run()
		if err := next.cmd.Wait(); err == nil || !hasAll(next.log.String(), waysOut) {
			t.Errorf("the upgrade: %v\n%s", err, next.log)
		}
		w.who(t)
		_ = b.stop(syscall.SIGKILL)
		again := launchIn(t, w.Balancer, b.dir, w.service(nil, inKernel))
		if err := again.cmd.Wait(); err == nil || !hasAll(again.log.String(), waysOut) {
			t.Errorf("the start: %v\n%s", err, again.log)
		}
		kept.works(t)
		out, err := w.Balancer.Command(context.Background(), batonPath, "cleanup", "--state-dir", b.dir).CombinedOutput()
		if err != nil || !hasAll(string(out), []string{"removed map", "removed program", "removed bpffs"}) {
			t.Errorf("cleanup: %v\n%s", err, out)
		}
		third := launchIn(t, w.Balancer, b.dir, w.service(nil, inKernel))
		third.waitServing()
		w.who(t)
	})
}
