package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// services are one for each protocol and port, with all backends.
func (w between) services(ports []int, more ...string) string {
	var backends []string
	for _, a := range w.backendAt {
		backends = append(backends, fmt.Sprintf("%q", netip.AddrPortFrom(a, shownPort)))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "services:\n")
	for _, proto := range []string{"tcp", "udp"} {
		for _, port := range ports {
			fmt.Fprintf(&b, "  - name: %s%d\n    frontends: [\"%s://%s\"]\n    backends: [%s]\n    clientAddress: transparent\n",
				proto, port, proto, netip.AddrPortFrom(w.vip, uint16(port)), strings.Join(backends, ", "))
			for _, line := range more {
				fmt.Fprintf(&b, "    %s\n", line)
			}
		}
	}
	return b.String()
}

// asks connects from a port of a host, and says what the backend saw.
func (w between) asks(t *testing.T, h *testnet.Host, network string, from netip.AddrPort, port uint16) (c net.Conn, saw string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := h.DialContext(ctx, network, from, netip.AddrPortFrom(w.vip, port))
	if err != nil {
		t.Fatalf("connect from %s: %v", from, err)
	}
	t.Cleanup(func() { c.Close() })
	return c, sees(t, c)
}

// sees exchanges a line and returns who the backend says that has sent it, with UDP
// each time, with TCP the first time.
func sees(t *testing.T, c net.Conn) string {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte("who?\n")); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for b := make([]byte, 256); bytes.Count(got, []byte("\n")) < 2; {
		n, err := c.Read(b)
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		got = append(got, b[:n]...)
	}
	saw, rest, _ := strings.Cut(string(got), "\n")
	if rest != "who?\n" {
		t.Errorf("the echo is %q", rest)
	}
	return saw
}

func protocolOf(network string) flow.Proto {
	if network == "udp" {
		return flow.UDP
	}
	return flow.TCP
}

// shownFlow is the record of a client's flow of a protocol.
func (b *baton) shownFlow(t *testing.T, network string, client netip.AddrPort, port uint16) (v flow.View) {
	t.Helper()
	for _, v := range append(b.flows(), b.ended()...) {
		if v.Client == client && v.Protocol == protocolOf(network) && v.Frontend.Port() == port {
			return v
		}
	}
	t.Errorf("no %s flow of %s", network, client)
	return v
}

var bothProtocols = []string{"tcp", "udp"}

// The backend sees the client's address and port, bytes move, and all stays in place
// over a handoff.
func TestTransparent(t *testing.T) {
	for _, mode := range []string{"never", "always"} {
		t.Run(mode, func(t *testing.T) {
			onTheWay(t, 1, func(t *testing.T, w between) {
				b := start(t, w.balancer, w.services([]int{80}, "offload: {mode: "+mode+"}"))
				for _, network := range bothProtocols {
					from := netip.AddrPortFrom(w.clientAt, 45678)
					c, saw := w.asks(t, w.client, network, from, 80)
					if saw != from.String() {
						t.Errorf("%s: the backend saw %s, want %s", network, saw, from)
					}
					want := flow.PathUserspace
					if mode == "always" && !w.bridged {
						want = flow.PathBPF
					}
					eventually(t, network+" is carried by "+string(want), func() error {
						if network == "udp" {
							if saw := sees(t, c); saw != from.String() {
								t.Errorf("later the backend saw %s", saw)
							}
						}
						if v := b.shownFlow(t, network, from, 80); v.Path != want {
							return fmt.Errorf("%s by %s (%s)", v.State, v.Path, v.NotOffloaded)
						}
						return nil
					})
					if network == "tcp" {
						echoesAll(t, c, 4<<20)
					}
					v := b.shownFlow(t, network, from, 80)
					if v.ClientAddress != flow.ClientTransparent || v.NotTransparent != "" {
						t.Errorf("%s: the record says %s %s", network, v.ClientAddress, v.NotTransparent)
					}
					if mode == "always" && w.bridged && v.NotOffloaded != flow.NotOffloadedUnseen {
						t.Errorf("%s behind a bridge: not offloaded: %s", network, v.NotOffloaded)
					}
				}
			})
		})
	}
}

// echoesAll sends bytes and gets them back.
func echoesAll(t *testing.T, c net.Conn, n int) {
	t.Helper()
	data := bytes.Repeat([]byte("0123456789abcdef"), n/16)
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	sent := make(chan error, 1)
	go func() { _, err := c.Write(data); sent <- err }()
	back := make([]byte, len(data))
	if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(back, data) {
		t.Errorf("the echo of %d bytes is another: %v", n, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// Where the client's port is taken, its address is kept all the same.
func TestTransparentPortTaken(t *testing.T) {
	onTheWay(t, 1, func(t *testing.T, w between) {
		b := start(t, w.balancer, w.services([]int{80, 81}, "offload: {mode: never}"))
		for _, network := range bothProtocols {
			from := netip.AddrPortFrom(w.clientAt, 45678)
			// The client may use its port for another frontend at the same time.
			if _, saw := w.sharing(t, network, from, 80); saw != from.String() {
				t.Errorf("%s: the backend saw %s, want %s", network, saw, from)
			}
			c, saw := w.sharing(t, network, from, 81)
			if a, err := netip.ParseAddrPort(saw); err != nil || a.Addr() != w.clientAt || a.Port() == from.Port() {
				t.Errorf("%s: the backend saw %s a second time", network, saw)
			}
			if v := b.shownFlow(t, network, from, 81); v.ClientAddress != flow.ClientPortChanged {
				t.Errorf("%s: the record says %q", network, v.ClientAddress)
			}
			c.Close()
		}
	})
}

// sharing is asks from a port that may be in use, and used again.
func (w between) sharing(t *testing.T, network string, from netip.AddrPort, port uint16) (net.Conn, string) {
	t.Helper()
	d := net.Dialer{Timeout: 10 * time.Second, Control: func(_, _ string, c syscall.RawConn) (err error) {
		outer := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) })
		if outer != nil {
			return outer
		}
		return err
	}}
	d.LocalAddr = net.TCPAddrFromAddrPort(from)
	if network == "udp" {
		d.LocalAddr = net.UDPAddrFromAddrPort(from)
	}
	c, err := w.client.DialWith(t.Context(), &d, network, netip.AddrPortFrom(w.vip, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, sees(t, c)
}

// Where the client's address cannot be right, the flow works without it, and the
// record says why.
func TestTransparentMasked(t *testing.T) {
	onTheWay(t, 1, func(t *testing.T, w between) {
		b := start(t, w.balancer, w.services([]int{80}, "offload: {mode: never}"))
		for _, tc := range []struct {
			from *testnet.Host
			want flow.NotTransparent
		}{
			{w.backends[0], flow.NotTransparentHairpin},
			{w.balancer, flow.NotTransparentHostLocal},
		} {
			for _, network := range bothProtocols {
				c, saw := w.asks(t, tc.from, network, netip.AddrPort{}, 80)
				me := netip.MustParseAddrPort(c.LocalAddr().String())
				if saw == me.String() {
					t.Errorf("%s from %s: the backend saw %s", network, tc.from.Name(), saw)
				}
				if v := b.shownFlow(t, network, me, 80); v.ClientAddress != flow.ClientMasked || v.NotTransparent != tc.want {
					t.Errorf("%s from %s: the record says %s %q, want %q", network, tc.from.Name(), v.ClientAddress, v.NotTransparent, tc.want)
				}
			}
		}
	})
}

// A backend whose answers do not come back costs a timeout, not the client.
func TestTransparentNoWayBack(t *testing.T) {
	onTheWay(t, 2, func(t *testing.T, w between) {
		lost := &netlink.Route{Dst: prefixNet(netip.PrefixFrom(w.clientAt, w.clientAt.BitLen())), Type: syscall.RTN_BLACKHOLE}
		if err := w.backends[0].Netlink().RouteAdd(lost); err != nil {
			t.Fatal(err)
		}
		b := start(t, w.balancer, w.services([]int{80}, "offload: {mode: never}", "timeouts: {connect: 300ms}"))
		for i := range 4 {
			from := netip.AddrPortFrom(w.clientAt, uint16(45000+i))
			if _, saw := w.asks(t, w.client, "tcp", from, 80); saw != from.String() {
				t.Errorf("the backend saw %s, want %s", saw, from)
			}
			if v := b.shownFlow(t, "tcp", from, 80); v.Backend.Addr() != w.backendAt[1] {
				t.Errorf("served by %s", v.Backend)
			}
		}
		if row := b.row(netip.AddrPortFrom(w.backendAt[0], shownPort).String()); row.Failures == 0 {
			t.Errorf("no failure of %s was counted", row.Backend)
		}
	})
}

func prefixNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// rulesOf lists what a host has beside the kernel's own rules, and the table of ours.
func (w between) rulesOf(t *testing.T) (found []string) {
	t.Helper()
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := w.balancer.Netlink().RuleList(family)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rules {
			if r.Priority != 0 && r.Priority < 32766 {
				found = append(found, r.String())
			}
		}
		routes, err := w.balancer.Netlink().RouteListFiltered(family, &netlink.Route{Table: 66066}, netlink.RT_FILTER_TABLE)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			found = append(found, r.String())
		}
	}
	return found
}

// After a crash the next process goes on; a stop leaves nothing, nor does a cleanup.
func TestTransparentLeavesNothing(t *testing.T) {
	onTheWay(t, 1, func(t *testing.T, w between) {
		from := netip.AddrPortFrom(w.clientAt, 45678)
		if left := w.rulesOf(t); len(left) > 0 {
			t.Fatalf("before: %q", left)
		}
		dir := t.TempDir()
		services := w.services([]int{80}, "offload: {mode: never}")
		for i := range 2 {
			b := launchIn(t, w.balancer, dir, services)
			b.waitServing()
			if n := len(w.rulesOf(t)); n != 8 {
				t.Errorf("run %d: %d rules and routes", i, n)
			}
			c, saw := w.asks(t, w.client, "udp", from, 80)
			if saw != from.String() {
				t.Errorf("run %d: the backend saw %s", i, saw)
			}
			_ = b.stop(syscall.SIGKILL)
			c.Close()
		}
		if n := len(w.rulesOf(t)); n != 8 {
			t.Errorf("after kill -9: %d rules and routes", n)
		}
		out, err := w.balancer.Command(t.Context(), batonPath, "cleanup", "--state-dir", dir).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "removed rule") {
			t.Errorf("cleanup: %v\n%s", err, out)
		}
		if left := w.rulesOf(t); len(left) > 0 {
			t.Errorf("after cleanup: %q", left)
		}
		b := launchIn(t, w.balancer, dir, services)
		b.waitServing()
		if err := b.stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if left := w.rulesOf(t); len(left) > 0 {
			t.Errorf("after SIGTERM: %q", left)
		}
	})
}

// Services that ask, and those that no longer do, come and go while it runs.
func TestTransparentReload(t *testing.T) {
	onTheWay(t, 1, func(t *testing.T, w between) {
		asking := w.services([]int{80}, "offload: {mode: never}")
		masked := strings.ReplaceAll(asking, "    clientAddress: transparent\n", "")
		b := start(t, w.balancer, masked)
		if left := w.rulesOf(t); len(left) > 0 {
			t.Errorf("nobody asks, and there is %q", left)
		}
		for i, services := range []string{masked, asking, masked, asking} {
			if i > 0 {
				b.reload(services)
			}
			for _, network := range bothProtocols {
				port := uint16(45000 + 100*i)
				eventually(t, fmt.Sprintf("configuration %d is in force", i), func() error {
					port++ // a UDP session keeps what it has been shown as
					from := netip.AddrPortFrom(w.clientAt, port)
					if _, saw := w.asks(t, w.client, network, from, 80); (saw == from.String()) != (i%2 == 1) {
						return fmt.Errorf("%s: the backend saw %s", network, saw)
					}
					return nil
				})
			}
		}
	})
}
