package e2e

import (
	"net"
	"net/netip"
	"testing"

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
