package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// What the kernel carries goes on with the client's address and port, whatever becomes
// of the process; the next one says of it what the one before has said.
func TestTransparentKilled(t *testing.T) {
	onTheWay(t, 1, func(t *testing.T, w between) {
		if w.bridged {
			t.Skip("flows whose answers a bridge would carry past stay in userspace")
		}
		services := w.services([]int{80}, inKernel)
		b := start(t, w.balancer, services)
		from := netip.AddrPortFrom(w.clientAt, 45678)
		conns := make(map[string]net.Conn)
		for _, network := range bothProtocols {
			conns[network], _ = w.asks(t, w.client, network, from, 80)
			b.isShown(t, network, from, conns[network], flow.PathBPF)
		}
		hairpin, _ := w.asks(t, w.backends[0], "tcp", netip.AddrPort{}, 80)
		masked := b.inKernelNow(hairpin.LocalAddr())[0]
		_ = b.stop(syscall.SIGKILL)
		w.goesOn(t, conns, from)
		b = launchIn(t, w.balancer, b.dir, services)
		b.waitServing()
		for _, network := range bothProtocols {
			b.isShown(t, network, from, conns[network], flow.PathBPF)
		}
		w.goesOn(t, conns, from)
		if v := b.inKernelNow(hairpin.LocalAddr())[0]; v.ClientAddress != masked.ClientAddress || v.NotTransparent != flow.NotTransparentHairpin {
			t.Errorf("the record says %s %q, said %s %q", v.ClientAddress, v.NotTransparent, masked.ClientAddress, masked.NotTransparent)
		}
		later := netip.AddrPortFrom(w.clientAt, 45679)
		for _, network := range bothProtocols {
			if _, saw := w.asks(t, w.client, network, later, 80); saw != later.String() {
				t.Errorf("%s: the backend saw %s, want %s", network, saw, later)
			}
		}
	})
}

// Over an upgrade too, whether the kernel carries them or not; and what the process
// before has made is not taken away by it.
func TestTransparentUpgrade(t *testing.T) {
	onTheWay(t, 1, func(t *testing.T, w between) {
		services := w.services([]int{80}, inUserspace)
		b := start(t, w.balancer, services)
		from := netip.AddrPortFrom(w.clientAt, 45678)
		conns := make(map[string]net.Conn)
		for _, network := range bothProtocols {
			conns[network], _ = w.asks(t, w.client, network, from, 80)
		}
		next := b.upgrade(world{Star: &testnet.Star{Balancer: w.balancer}}, services)
		w.goesOn(t, conns, from)
		next.isShown(t, "udp", from, conns["udp"], flow.PathUserspace)
		conns["tcp"].Close()
		b.exits(20 * time.Second)
		if n := len(w.rulesOf(t)); n != 8 {
			t.Errorf("%d rules and routes", n)
		}
		delete(conns, "tcp")
		w.goesOn(t, conns, from)
		later := netip.AddrPortFrom(w.clientAt, 45679)
		for _, network := range bothProtocols {
			if _, saw := w.asks(t, w.client, network, later, 80); saw != later.String() {
				t.Errorf("%s: the backend saw %s, want %s", network, saw, later)
			}
		}
		if err := next.stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if left := w.rulesOf(t); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

// goesOn exchanges bytes on connections that began before.
func (w between) goesOn(t *testing.T, conns map[string]net.Conn, from netip.AddrPort) {
	t.Helper()
	for network, c := range conns {
		if network == "tcp" {
			echoesAll(t, c, 1<<16)
		} else if saw := sees(t, c); saw != from.String() {
			t.Errorf("later the backend saw %s, want %s", saw, from)
		}
	}
}

// isShown waits until a flow is on a path, and says that its backend sees the client.
func (b *baton) isShown(t *testing.T, network string, client netip.AddrPort, c net.Conn, path flow.PathName) {
	t.Helper()
	eventually(t, network+" is carried by "+string(path), func() error {
		if network == "udp" {
			sees(t, c)
		}
		v := b.shownFlow(t, network, client, 80)
		if v.Path != path || v.ClientAddress != flow.ClientTransparent {
			return fmt.Errorf("%s by %s (%s); it says %q", v.State, v.Path, v.NotOffloaded, v.ClientAddress)
		}
		return nil
	})
}

// A flow that is handed over in the middle of its bytes keeps them all, and its
// client's address.
func TestTransparentHandedOffBusy(t *testing.T) {
	onTheWay(t, 1, func(t *testing.T, w between) {
		b := start(t, w.balancer, w.services([]int{80}, "offload: {mode: auto, afterBytes: 1, afterAge: 300ms}"))
		from := netip.AddrPortFrom(w.clientAt, 45678)
		c, _ := w.asks(t, w.client, "tcp", from, 80)
		want := flow.PathBPF
		if w.bridged {
			want = flow.PathUserspace
		}
		for range 4 {
			echoesAll(t, c, 8<<20)
		}
		b.isShown(t, "tcp", from, c, want)
		echoesAll(t, c, 8<<20)
	})
}
