package e2e

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// What the kernel carries goes on over an upgrade: the next process knows it by the
// same ids, with counters that go on, and hands new flows over as before.
func TestUpgradeOfOffloaded(t *testing.T) {
	const flows = 20
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.offload = inKernel
		w.serveNamed()
		atClient := w.wire(t, w.ClientLink.B)
		b := start(t, w.Balancer, w.service(nil))
		var conns []*conn
		for range flows {
			c, _ := w.named(t)
			w.carried(b, c.TCPConn)
			conns = append(conns, c)
		}
		for range 3 {
			before := make(map[netip.AddrPort]flow.View)
			for _, v := range b.wantFlows(flows) {
				before[v.Client] = v
			}
			next := b.upgrade(w, w.service(nil))
			for _, c := range conns {
				c.works(t)
			}
			for _, v := range next.wantFlows(flows) {
				was := before[v.Client]
				if v.ID != was.ID || v.Path != flow.PathBPF || v.BytesToBackend < was.BytesToBackend || v.BytesToClient < was.BytesToClient {
					t.Errorf("the flow was %+v, is %+v", was, v)
				}
			}
			b.exits(10 * time.Second)
			b = next
			c, _ := w.named(t)
			w.carried(b, c.TCPConn)
			c.works(t)
			c.ends(t)
		}
		atClient.noReset(t)
		for _, c := range conns {
			c.works(t)
			c.ends(t)
		}
		eventually(t, "no flow is left", func() error {
			if n := len(b.flows()); n > 0 {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
		if err := b.stop(syscall.SIGTERM); err != nil {
			t.Errorf("stop: %v", err)
		}
		b.gone(w)
		if left := programs(t, w.Balancer); len(left) > 0 {
			t.Errorf("programs are left: %v", left)
		}
	})
}

// A flow is listed by the process that looks after it, and by no other: one in the kernel,
// and every UDP session. None of them has ended.
func TestUpgradeListsFlowsOnce(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		serveUDP(t, w.Backends[0], w.backend(0), echo)
		beside := w
		beside.vip = netip.AddrPortFrom(w.vip.Addr(), w.vip.Port()+1)
		services := w.service(nil, inKernel) + w.another("udp", "udp", 0, inKernel) +
			beside.another("stays", "tcp", 0, inUserspace) + beside.another("udp-beside", "udp", 0, inUserspace)
		b := start(t, w.Balancer, services)
		gone, _ := w.named(t)
		stays, _ := beside.named(t)
		udp := []net.Conn{w.udp(t, w.vip), w.udp(t, beside.vip)}
		exchanges := func() {
			t.Helper()
			for _, c := range udp {
				if _, err := exchange(c, []byte("x")); err != nil {
					t.Error(err)
				}
			}
		}
		exchanges()
		b.inKernelNow(gone.LocalAddr(), udp[0].LocalAddr())
		want := servicesByID(b.wantFlows(4))
		next := b.upgrade(w, services)
		if all := b.upgraded().flows(); len(all) != 1 || all[0].Service != "stays" {
			t.Errorf("the old process lists %+v", all)
		}
		if all := b.upgraded().ended(); len(all) != 0 {
			t.Errorf("in the old process have ended %+v", all)
		}
		maps.DeleteFunc(want, func(_ flow.ID, service string) bool { return service == "stays" })
		if got := servicesByID(next.flows()); !maps.Equal(got, want) {
			t.Errorf("the new process lists %v, want %v", got, want)
		}
		gone.works(t)
		stays.works(t)
		exchanges()
	})
}

func servicesByID(views []flow.View) map[flow.ID]string {
	all := make(map[flow.ID]string)
	for _, v := range views {
		all[v.ID] = v.Service
	}
	return all
}

// Connections that are too young, or too quiet, to have left userspace leave it before the
// process that has them does: none of them keeps it, or is reset with it.
func TestUpgradeHandsOffWhatIsQuiet(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.serveNamed()
		w.offload = "offload: {mode: auto, afterBytes: 1GiB, afterAge: 1h}"
		b := start(t, w.Balancer, w.service(nil))
		var conns []*conn
		for range 20 {
			c, _ := w.named(t)
			conns = append(conns, c)
		}
		for _, v := range b.wantFlows(len(conns)) {
			if v.Path != flow.PathUserspace {
				t.Errorf("before the upgrade it is carried by %s", v.Path)
			}
		}
		next := b.upgrade(w, w.service(nil))
		b.exits(10 * time.Second)
		for _, c := range conns {
			c.works(t)
		}
		for _, v := range next.wantFlows(len(conns)) {
			if v.Path != flow.PathBPF {
				t.Errorf("after the upgrade it is carried by %s (%s)", v.Path, v.NotOffloaded)
			}
		}
		for _, c := range conns {
			c.ends(t)
		}
	})
}

// UDP sessions that the kernel carries lose no datagram, nor their backend.
func TestUpgradeOfOffloadedUDP(t *testing.T) {
	const clients = 6
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.offload = inKernel
		var servers []*udpServer
		for i, h := range w.Backends {
			servers = append(servers, serveUDP(t, h, w.backend(i), named(h.Name())))
		}
		b := start(t, w.Balancer, w.udpService(nil))
		var conns []net.Conn
		var names []string
		for range clients {
			c := w.udp(t, w.vip)
			got, err := exchange(c, []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			conns, names = append(conns, c), append(names, string(got))
		}
		w.carriedUDP(b, conns...)
		was := ids(b.wantFlows(clients))
		for range 3 {
			next := b.upgrade(w, w.udpService(nil))
			for i, c := range conns {
				for range 20 {
					if got, err := exchange(c, []byte("x")); err != nil || string(got) != names[i] {
						t.Errorf("client %d was at %q, is at %q, %v", i, names[i], got, err)
					}
				}
			}
			b.exits(10 * time.Second)
			b = next
			w.carriedUDP(b, conns...)
		}
		for client, id := range ids(b.wantFlows(clients)) {
			if was[client] != id {
				t.Errorf("%s was flow %s, is flow %s", client, was[client], id)
			}
		}
		ports := 0
		for _, s := range servers {
			ports += s.senders()
		}
		if ports != clients {
			t.Errorf("the backends saw %d source addresses from %d clients", ports, clients)
		}
	})
}
