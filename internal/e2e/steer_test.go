package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// Mode steer, as a line of the file.
const steered = "mode: steer"

// eachChoice runs a test for each way in which a backend is chosen that does not depend on the client; lines are a service's.
func eachChoice(t *testing.T, f func(t *testing.T, lines []string)) {
	t.Run("Ticket", func(t *testing.T) { f(t, []string{steered}) })
	t.Run("Packet", func(t *testing.T) { f(t, []string{steered, "steer: {choose: packet}"}) })
}

// A flow that is steered is nobody's socket: the program in the kernel carries it from its first packet on.
func TestSteer(t *testing.T) {
	eachChoice(t, func(t *testing.T, lines []string) {
		bothFamilies(t, 2, func(t *testing.T, w world) {
			w.serveNamed()
			b := start(t, w.Balancer, w.service(nil, lines...))
			var conns []*conn
			names := map[string]int{}
			for range 10 {
				c, name := w.named(t)
				conns = append(conns, c)
				names[name]++
			}
			if len(names) != 2 || names["backend1"] != 5 {
				t.Errorf("they went to %v", names)
			}
			for _, c := range conns {
				c.works(t)
			}
			for _, v := range b.wantFlows(10) {
				if v.Mode != flow.ModeSteer || v.Path != flow.PathBPF || v.BytesToBackend == 0 || v.BytesToClient == 0 {
					t.Errorf("recorded as %+v", v)
				}
			}
			for _, c := range conns {
				c.ends(t)
				wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByClient, flow.ReasonClosed)
			}
		})
	})
}

// The same for datagrams.
func TestSteerUDP(t *testing.T) {
	eachChoice(t, func(t *testing.T, lines []string) {
		bothFamilies(t, 2, func(t *testing.T, w world) {
			for i, h := range w.Backends {
				serveUDP(t, h, w.backend(i), named(h.Name()))
			}
			b := start(t, w.Balancer, w.udpService(nil, lines...))
			var clients []net.Conn
			for range 4 {
				c := w.udp(t, w.vip)
				for range 3 {
					if _, err := exchange(c, []byte("x")); err != nil {
						t.Fatal(err)
					}
				}
				clients = append(clients, c)
			}
			b.wantFlows(4)
			for _, c := range clients {
				v := b.carriedBy(flow.PathBPF, netip.MustParseAddrPort(c.LocalAddr().String()))[0]
				if v.Mode != flow.ModeSteer || v.PacketsToBackend != 3 || v.PacketsToClient != 3 {
					t.Errorf("recorded as %+v", v)
				}
			}
		})
	})
}

// A kill, with connections all the while: those that are open go on, no new one fails while no process is there, and the next process has
// them under their names.
func TestSteerKilled(t *testing.T) {
	eachChoice(t, func(t *testing.T, lines []string) {
		bothFamilies(t, 2, func(t *testing.T, w world) {
			w.serveNamed()
			b := start(t, w.Balancer, w.service(nil, lines...))
			kept, _ := w.named(t)
			id := b.carriedBy(flow.PathBPF, netip.MustParseAddrPort(kept.LocalAddr().String()))[0].ID
			l := w.load(t, 4)
			l.more(t, 200)
			_ = b.stop(syscall.SIGKILL)
			l.more(t, 200) // by the choices that wait, and then by the table
			kept.works(t)
			again := launchIn(t, w.Balancer, b.dir, w.service(nil, lines...))
			again.waitServing()
			l.more(t, 200)
			l.end(t)
			if v := again.carriedBy(flow.PathBPF, netip.MustParseAddrPort(kept.LocalAddr().String()))[0]; v.ID != id || v.Mode != flow.ModeSteer {
				t.Errorf("the flow was %s, is %+v", id, v)
			}
			kept.works(t)
			kept.ends(t)
			again.endedOf(kept.LocalAddr())
			again.signal(syscall.SIGTERM)
			again.exits(10 * time.Second)
			if name, err := w.Client.AskName(w.vip); err == nil {
				t.Errorf("after a stop %s answers", name)
			}
		})
	})
}

// An upgrade, with connections all the while: none fails, and the flows are the new process's.
func TestSteerUpgrade(t *testing.T) {
	eachChoice(t, func(t *testing.T, lines []string) {
		bothFamilies(t, 2, func(t *testing.T, w world) {
			w.serveNamed()
			b := start(t, w.Balancer, w.service(nil, lines...))
			kept, _ := w.named(t)
			l := w.load(t, 4)
			l.more(t, 200)
			for range 2 {
				next := b.upgrade(w, w.service(nil, lines...))
				b.exits(20 * time.Second)
				b = next
				l.more(t, 100)
			}
			l.end(t)
			kept.works(t)
			if v := b.carriedBy(flow.PathBPF, netip.MustParseAddrPort(kept.LocalAddr().String()))[0]; v.Mode != flow.ModeSteer {
				t.Errorf("the flow is %+v", v)
			}
			kept.ends(t)
		})
	})
}

// U5 for connections: a backend that refuses them is passed over before long, each refusal counts against it, and none is a flow.
func TestSteerBackendRefuses(t *testing.T) {
	eachChoice(t, func(t *testing.T, lines []string) {
		bothFamilies(t, 2, func(t *testing.T, w world) {
			w.Backends[1].Serve(8080, testnet.Named("live"))
			b := start(t, w.Balancer, w.service(nil, lines...))
			refused := 0
			eventually(t, "the backend that refuses is passed over", func() error {
				for range 8 {
					if name, err := w.Client.AskName(w.vip); errors.Is(err, syscall.ECONNREFUSED) {
						refused++
						return err
					} else if err != nil || name != "live" {
						return fmt.Errorf("%q, %v", name, err)
					}
				}
				return nil
			})
			if refused == 0 {
				t.Error("nobody was refused")
			}
			b.wantMetric(float64(refused), "baton_dial_failures_total", `service="web"`, `reason="refused"`)
			for _, v := range append(b.flows(), b.ended()...) {
				if v.Backend == w.backend(0) {
					t.Errorf("recorded as %+v", v)
				}
			}
		})
	})
}

// limits.perClient is held where each first packet is looked at.
func TestSteerPerClient(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, steered, "limits: {perClient: 2}"))
		b.waitLog("if=baton-desk")
		first, _ := w.named(t)
		w.named(t)
		if err := w.refused(t, w.Client); err != nil {
			t.Errorf("a third: %v", err)
		}
		first.ends(t)
		b.endedOf(first.LocalAddr())
		w.named(t)
	})
}

// whenAbsent: refuse has new connections refused while no process is there.
func TestSteerRefusesWhenAbsent(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, steered, "steer: {whenAbsent: refuse}"))
		kept, _ := w.named(t)
		_ = b.stop(syscall.SIGKILL)
		eventually(t, "new connections are refused", func() error { return w.refused(t, w.Client) })
		kept.works(t)
	})
}

// A process of the balancer's own host meets the relay, which listens at the same address.
func TestSteerHostLocal(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, steered))
		name, err := w.Balancer.AskName(w.vip)
		if err != nil || name != "backend1" {
			t.Fatalf("got %q, %v", name, err)
		}
		eventually(t, "it was proxied", func() error {
			for _, v := range b.ended() {
				if v.Mode == flow.ModeProxy {
					return nil
				}
			}
			return fmt.Errorf("ended: %+v", b.ended())
		})
	})
}

// The client's address is kept where it can be.
func TestSteerTransparent(t *testing.T) {
	onTheWay(t, 1, func(t *testing.T, w between) {
		if w.bridged {
			return // the answers of a backend on the client's own bridge do not come to IP
		}
		b := start(t, w.balancer, w.services([]int{80}, steered))
		for _, network := range bothProtocols {
			from := netip.AddrPortFrom(w.clientAt, 45678)
			c, saw := w.asks(t, w.client, network, from, 80)
			if saw != from.String() {
				t.Errorf("%s: the backend saw %s, want %s", network, saw, from)
			}
			b.wantFlows(1)
			if v := b.shownFlow(t, network, from, 80); v.Mode != flow.ModeSteer || v.Path != flow.PathBPF || v.ClientAddress != flow.ClientTransparent {
				t.Errorf("%s: %+v", network, v)
			}
			if network == "tcp" {
				echoesAll(t, c, 4<<20)
			}
			c.Close()
			if network == "tcp" {
				b.wantFlows(0)
			}
		}
	})
}
