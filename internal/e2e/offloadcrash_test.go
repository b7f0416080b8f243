package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }

// ids of flows by client.
func ids(views []flow.View) map[netip.AddrPort]flow.ID {
	all := make(map[netip.AddrPort]flow.ID)
	for _, v := range views {
		all[v.Client] = v.ID
	}
	return all
}

// survives starts a process with flows in the kernel, ends it, has its flows go on
// without it, and has the next process know them.
func (w world) survives(t *testing.T, n int, end func(b *baton)) {
	t.Helper()
	w.offload = inKernel
	w.Backends[0].Serve(8080, thriftyMirror)
	stranger := w
	star := *w.Star
	star.Client = w.AddClient("stranger") // whose connections are not of those that are watched
	stranger.Star = &star
	atClient, atBackend := w.wire(t, w.ClientLink.B), w.wire(t, w.BackendLinks[0].B)
	b := start(t, w.Balancer, w.service(nil))
	k := w.gather(t, b, n)
	before := ids(k.carried())
	echoes := k.echoing(t)
	echoes.more(t, 1)
	end(b)
	echoes.more(t, 2)
	if err := stranger.unreachable(t); err != nil {
		t.Errorf("while the process is away: %v", err)
	}
	again := launchIn(t, w.Balancer, b.dir, w.service(nil))
	again.waitServing()
	k.b = again
	after := ids(k.carried())
	for client, id := range before {
		if after[client] != id {
			t.Errorf("%s was flow %s and is flow %s", client, id, after[client])
		}
	}
	echoes.more(t, 1)
	t.Logf("%d flows, %d rounds of echoes", n, echoes.stop())
	stranger.dial(t).Close()
	atClient.noReset(t)
	atBackend.noReset(t)
	k.finish(t)
}

// kill -9 under load: the flows in the kernel go on, and the next process knows them
// by the same ids and with the right counters.
func TestOffloadKilled(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.survives(t, fewer(500), func(b *baton) { _ = b.stop(syscall.SIGKILL) })
	})
}

// SIGTERM leaves them alone too, and does not wait for them.
func TestOffloadStopped(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.survives(t, fewer(100), func(b *baton) {
			began := time.Now()
			if err := b.stop(syscall.SIGTERM); err != nil {
				t.Errorf("the process ended with %v", err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the process took %v to end", took)
			}
		})
	})
}

// A stop that is told to drain waits for them; one that is told to reset ends them.
func TestOffloadFlowsOnExit(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = inKernel
		w.serveNamed()
		for _, how := range []string{"reset", "drain"} {
			b := start(t, w.Balancer, w.service(nil), "--flows-on-exit", how, "--exit-timeout", "2s")
			c, _ := w.named(t)
			w.carried(b, c.TCPConn)
			if how == "drain" {
				b.stopsListening(w)
				c.works(t)
				c.ends(t)
			} else {
				b.signal(syscall.SIGTERM)
				c.wasReset(t)
			}
			b.exits(10 * time.Second)
			b.gone(w)
		}
	})
}

// What changed while no process was there is in force with the next one: a flow of a
// backend that is gone ends as its service says, a service that is gone ends its own.
func TestOffloadChangedWhileAway(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.offload = inKernel
		w.serveNamed()
		const policy = "onBackendRemoved: reset"
		b := start(t, w.Balancer, w.service(nil, policy))
		removed, kept := w.at(t, 0), w.at(t, 1)
		w.carried(b, removed.TCPConn, kept.TCPConn)
		_ = b.stop(syscall.SIGKILL)
		again := launchIn(t, w.Balancer, b.dir, w.service(w.without(0), policy))
		again.waitServing()
		removed.wasReset(t)
		wantEnd(t, again.endedOf(removed.LocalAddr()), flow.ByBaton, flow.ReasonBackendRemoved)
		kept.works(t)
		_ = again.stop(syscall.SIGKILL)
		third := launchIn(t, w.Balancer, b.dir, "services: []\n")
		third.waitServing()
		kept.wasReset(t)
		wantEnd(t, third.endedOf(kept.LocalAddr()), flow.ByBaton, flow.ReasonServiceRemoved)
	})
}

// programs names the BPF programs on the devices of a host: tcx links, or filters of
// clsact on kernels without those.
func programs(t *testing.T, h *testnet.Host) (found []string) {
	t.Helper()
	links, err := h.Netlink().LinkList()
	if err != nil {
		t.Fatal(err)
	}
	h.Do(func() {
		for _, l := range links {
			for name, at := range map[string]ebpf.AttachType{"ingress": ebpf.AttachTCXIngress, "egress": ebpf.AttachTCXEgress} {
				r, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: at})
				if err == nil && len(r.Programs) > 0 {
					found = append(found, fmt.Sprintf("%d at %s of %s", len(r.Programs), name, l.Attrs().Name))
				}
			}
			for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
				filters, _ := h.Netlink().FilterList(l, parent)
				for _, f := range filters {
					found = append(found, fmt.Sprintf("filter %x of %s", f.Attrs().Parent, l.Attrs().Name))
				}
			}
		}
	})
	return found
}

// reservedPorts are those that a host keeps from its own programs.
func reservedPorts(t *testing.T, h *testnet.Host) string {
	t.Helper()
	var text []byte
	var err error
	h.Do(func() { text, err = os.ReadFile("/proc/sys/net/ipv4/ip_local_reserved_ports") })
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// `baton cleanup` after kill -9 leaves nothing of flows in the kernel: no program, no
// map, no mount, no reserved port.
func TestOffloadCleanup(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = inKernel
		w.serveNamed()
		const theirs = "5000-5001"
		w.Balancer.Sysctl("net.ipv4.ip_local_reserved_ports", theirs)
		b := start(t, w.Balancer, w.service(nil))
		c, _ := w.named(t)
		w.carried(b, c.TCPConn)
		if len(programs(t, w.Balancer)) == 0 || reservedPorts(t, w.Balancer) == theirs {
			t.Errorf("with a flow: programs %v, reserved ports %s", programs(t, w.Balancer), reservedPorts(t, w.Balancer))
		}
		_ = b.stop(syscall.SIGKILL)
		c.works(t)
		out, err := w.Balancer.Command(context.Background(), batonPath, "cleanup", "--state-dir", b.dir).CombinedOutput()
		if err != nil {
			t.Errorf("cleanup: %v: %s", err, out)
		}
		w.nothingLeft(t, b, theirs)
	})
}

func (w world) nothingLeft(t *testing.T, b *baton, ports string) {
	t.Helper()
	eventually(t, "no program is left", func() error { // they go when their last reference has
		if left := programs(t, w.Balancer); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
	if now := reservedPorts(t, w.Balancer); now != ports {
		t.Errorf("reserved ports are %q, were %q", now, ports)
	}
	if left := vipRoutes(t, w.Balancer); len(left) > 0 {
		t.Errorf("routes are left: %v", left)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), b.dir) {
		t.Errorf("something is mounted below %s, %v", b.dir, err)
	}
	files, err := filepath.Glob(filepath.Join(b.dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := filepath.Base(f); !slices.Contains([]string{"baton.yaml", "admin.sock"}, name) {
			t.Errorf("%s is left", name)
		}
	}
}

// A clean stop without flows leaves nothing either.
func TestOffloadStopLeavesNothing(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = inKernel
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil))
		c, _ := w.named(t)
		w.carried(b, c.TCPConn)
		c.ends(t)
		b.noFlows()
		if err := b.stop(syscall.SIGTERM); err != nil {
			t.Errorf("the process ended with %v", err)
		}
		if left := vipRoutes(t, w.Balancer); len(left) > 0 {
			t.Errorf("routes are left: %v", left)
		}
		out, err := w.Balancer.Command(context.Background(), batonPath, "cleanup", "--state-dir", b.dir).CombinedOutput()
		if err != nil {
			t.Errorf("cleanup: %v: %s", err, out)
		}
		w.nothingLeft(t, b, "")
	})
}
