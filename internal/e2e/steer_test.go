package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// Mode steer, as a line of the file.
const steered = "mode: steer"

// A flow that is steered is nobody's socket: the program in the kernel carries it from its first packet on.
func TestSteer(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, steered))
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
}

// The same for datagrams.
func TestSteerUDP(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		for i, h := range w.Backends {
			serveUDP(t, h, w.backend(i), named(h.Name()))
		}
		b := start(t, w.Balancer, w.udpService(nil, steered))
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
}

// A kill, with connections all the while: those that are open go on, no new one fails while no process is there, and the next process has
// them under their names.
func TestSteerKilled(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, steered))
		kept, _ := w.named(t)
		id := b.carriedBy(flow.PathBPF, netip.MustParseAddrPort(kept.LocalAddr().String()))[0].ID
		l := w.load(t, 4)
		l.more(t, 200)
		_ = b.stop(syscall.SIGKILL)
		l.more(t, 200) // by the choices that wait, and then by the table
		kept.works(t)
		again := launchIn(t, w.Balancer, b.dir, w.service(nil, steered))
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
}

// An upgrade, with connections all the while: none fails, and the flows are the new process's.
func TestSteerUpgrade(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, steered))
		kept, _ := w.named(t)
		l := w.load(t, 4)
		l.more(t, 200)
		for range 2 {
			next := b.upgrade(w, w.service(nil, steered))
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
