package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// A backend is removed under every policy: the session moves at once, and the
// service's end is the session's.
func TestUDPRemoved(t *testing.T) {
	for _, policy := range []string{"keep", "drain", "reset"} {
		t.Run(policy, func(t *testing.T) {
			bothPaths(t, 2, func(t *testing.T, w world) {
				var servers []*udpServer
				for i, h := range w.Backends {
					servers = append(servers, serveUDP(t, h, w.backend(i), named(h.Name())))
				}
				more := "onBackendRemoved: " + policy
				only := func(i int) []string { return []string{fmt.Sprintf("%q", w.backend(i))} }
				b := start(t, w.Balancer, w.udpService(only(0), more))
				c := w.udp(t, w.vip)
				w.meets(t, b, c)
				b.configure(w.udpService(only(1), more))
				eventually(t, "the new backend answers", func() error {
					got, err := try(c)
					if err == nil && !strings.HasPrefix(string(got), w.Backends[1].Name()) {
						err = fmt.Errorf("got %q", got)
					}
					return err
				})
				before := servers[0].got.Load()
				for range 10 {
					if _, err := try(c); err != nil {
						t.Error(err)
					}
				}
				if n := servers[0].got.Load() - before; n != 0 {
					t.Errorf("%d datagrams reached the removed backend", n)
				}
				if v := b.wantFlows(1)[0]; v.Backend != w.backend(1) {
					t.Errorf("the flow is at %s", v.Backend)
				}
				other := "services:\n  - name: other\n    frontends: [\"udp://" + netip.AddrPortFrom(w.vip.Addr(), 99).String() + "\"]\n    backends: [" + only(0)[0] + "]\n"
				b.configure(other)
				eventually(t, "the client is refused", func() error {
					if _, err := try(c); !errors.Is(err, syscall.ECONNREFUSED) {
						return fmt.Errorf("got %v, want a refusal", err)
					}
					return nil
				})
				wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByBaton, flow.ReasonServiceRemoved)
			})
		})
	}
}

// One service has TCP and UDP at the same port, at an address that is the host's
// own, and backends of the other family.
func TestUDPBesideTCP(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		across := w
		across.v6 = !w.v6
		serveUDP(t, w.Backends[0], across.backend(0), echo)
		w.serveNamed()
		own := netip.AddrPortFrom(w.addr(w.Balancer), 53)
		b := start(t, w.Balancer, fmt.Sprintf(
			"services:\n  - name: dns\n    frontends: [\"udp://%s\", \"tcp://%s\", \"udp://%s\", \"tcp://%s\"]\n    backends: [%q]\n",
			own, own, w.vip, w.vip, across.backend(0)))
		for _, at := range []netip.AddrPort{own, w.vip} {
			if got, err := exchange(w.udp(t, at), []byte("x")); string(got) != "x" || err != nil {
				t.Errorf("UDP at %s: %q, %v", at, got, err)
			}
			if name, err := w.Client.AskName(at); name != w.Backends[0].Name() || err != nil {
				t.Errorf("TCP at %s: %q, %v", at, name, err)
			}
		}
		eventually(t, "two flows of UDP are left", func() error {
			for _, v := range b.flows() {
				if v.Protocol != flow.UDP || v.Backend != across.backend(0) {
					return fmt.Errorf("there is %+v", v)
				}
			}
			if n := len(b.flows()); n != 2 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
	})
}

// What is dropped, carried and ended is counted.
func TestUDPMetrics(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		t.Parallel()
		serveUDP(t, w.Backends[0], w.backend(0), named("backend"))
		config := func(more ...string) string {
			return w.udpService(nil, append(more, "timeouts: {udpIdle: 2s}")...)
		}
		b := start(t, w.Balancer, config("limits: {perClient: 2}"))
		c := w.udp(t, w.vip)
		for _, n := range []int{0, 10, 100} {
			if _, err := exchange(c, make([]byte, n)); err != nil {
				t.Fatal(err)
			}
		}
		labels := []string{`service="web"`, `path="userspace"`}
		b.wantMetric(110, "baton_bytes_total", append(labels, `direction="to_backend"`)...)
		b.wantMetric(110+3*8, "baton_bytes_total", append(labels, `direction="to_client"`)...)
		b.wantMetric(1, "baton_flows_active", append(labels, `protocol="udp"`)...)
		v := b.flows()[0]
		if v.PacketsToBackend != 3 || v.PacketsToClient != 3 || v.State != flow.Established || v.Path != flow.PathUserspace ||
			time.Since(v.LastSeenAt) > 10*time.Second || v.LastSeenAt.Before(v.StartedAt) {
			t.Errorf("recorded as %+v", v)
		}
		if _, err := exchange(w.udp(t, w.vip), nil); err != nil {
			t.Fatal(err)
		}
		_, _ = w.udp(t, w.vip).Write([]byte("one too many"))
		b.wantMetric(1, "baton_drops_total", `reason="limit-per-client"`)
		wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByBaton, flow.ReasonIdle)
		b.wantMetric(2, "baton_flows_total", append(labels, `protocol="udp"`, `ended_by="baton"`, `reason="idle-timeout"`)...)
		b.wantMetric(0, "baton_flows_active")
		b.wantMetric(110, "baton_bytes_total", append(labels, `direction="to_backend"`)...)
		b.reload(config(fmt.Sprintf("deny: [%q]", w.addr(w.Client))))
		eventually(t, "the client is turned away", func() error {
			_, _ = c.Write([]byte("x"))
			if b.metric("baton_drops_total", `reason="denied"`) == 0 {
				return errors.New("it is not")
			}
			return nil
		})
	})
}

// Few descriptors and a flood of UDP clients: each is served, and so are the
// clients of TCP.
func TestUDPFlood(t *testing.T) {
	const clients = 500
	bothFamilies(t, 1, func(t *testing.T, w world) {
		t.Parallel()
		serveUDP(t, w.Backends[0], w.backend(0), echo)
		w.serveNamed()
		tcp := netip.AddrPortFrom(w.vip.Addr(), 81)
		services := w.udpService(nil, "timeouts: {udpIdle: 2s}") + fmt.Sprintf(
			"  - name: other\n    frontends: [\"tcp://%s\"]\n    backends: [%q]\n", tcp, w.backend(0))
		b := prepare(t, w.Balancer, t.TempDir(), services)
		b.limited(256)
		b.run()
		b.waitServing()
		quiet := b.usage()
		for i := range clients {
			c, err := w.Client.Dial("udp", w.vip)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := exchange(c, []byte("query")); err != nil || string(got) != "query" {
				t.Fatalf("client %d: %q, %v", i, got, err)
			}
			c.Close()
			if i%50 == 0 {
				if name, err := w.Client.AskName(tcp); err != nil || name != w.Backends[0].Name() {
					t.Errorf("TCP beside %d clients: %q, %v", i, name, err)
				}
				if _, err := b.text("/readyz"); err != nil {
					t.Errorf("the API does not answer: %v", err)
				}
			}
		}
		b.wantFlows(0)
		b.settles(quiet)
		if n := b.metric("baton_flows_total", `protocol="udp"`); n < clients*9/10 { // some got the port of one before
			t.Errorf("%v flows of UDP have ended, there were %d clients", n, clients)
		}
		if n := b.metric("baton_drops_total"); n != 0 {
			t.Errorf("%v were dropped", n)
		}
	})
}

// TestSoakUDPOneShots is U6 in full: 200,000 clients with one query each.
func TestSoakUDPOneShots(t *testing.T) {
	soak(t)
	const queries, each = 200_000, 16
	bothFamilies(t, 2, func(t *testing.T, w world) {
		for i, h := range w.Backends {
			serveUDP(t, h, w.backend(i), echo)
		}
		second := netip.AddrPortFrom(w.vip.Addr(), 81)
		b := start(t, w.Balancer, w.udpService(nil)+fmt.Sprintf(
			"  - name: other\n    frontends: [\"udp://%s\"]\n    backends: [%q]\n", second, w.backend(0)))
		quiet := b.usage()
		other := w.udp(t, second)
		for range 2 {
			if _, err := exchange(other, []byte("first")); err != nil {
				t.Fatal(err)
			}
		}
		began, cpu := time.Now(), b.cpu()
		most := 0
		for at := 0; at < queries; at += queries / 20 {
			parallel(queries/20/each, func(int) {
				for range each {
					c, err := w.Client.Dial("udp", w.vip)
					if err != nil {
						t.Error(err)
						return
					}
					if got, err := exchange(c, []byte("query")); err != nil || string(got) != "query" {
						t.Errorf("a query: %q, %v", got, err)
					}
					c.Close()
				}
			})
			if got, err := exchange(other, []byte("again")); err != nil || string(got) != "again" {
				t.Errorf("the other service: %q, %v", got, err)
			}
			most = max(most, b.descriptors())
		}
		t.Logf("%d queries in %v, %v of CPU, at most %d descriptors", queries, time.Since(began), b.cpu()-cpu, most)
		if most > 15_000 {
			t.Errorf("%d descriptors are open at once", most)
		}
		for _, v := range b.ended() {
			if v.Service == "other" {
				t.Errorf("a session of the other service has ended: %+v", v)
			}
		}
		if n := b.metric("baton_drops_total"); n != 0 {
			t.Errorf("%v were dropped", n)
		}
		testnet.Eventually(t, 2*time.Minute, "all sessions have ended", func() error {
			if n := len(b.flows()); n > 0 {
				return fmt.Errorf("%d are live", n)
			}
			return nil
		})
		b.settles(quiet)
	})
}
