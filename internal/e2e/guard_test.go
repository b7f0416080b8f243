package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

const sshPort = 22

// standIn listens as sshd does, and over UDP too: on every address of the balancer.
func (w world) standIn(t *testing.T) {
	t.Helper()
	// A host sends few ICMP errors to one client; the test hears more than that.
	w.Balancer.Sysctl("net.ipv4.icmp_ratelimit", "0")
	w.Balancer.Sysctl("net.ipv6.icmp.ratelimit", "0")
	w.Balancer.Serve(sshPort, testnet.Named("ssh"))
	serveUDP(t, w.Balancer, netip.AddrPortFrom(netip.IPv6Unspecified(), sshPort), named("ssh"))
}

// vipAt is a port of the VIP.
func (w world) vipAt(port uint16) netip.AddrPort { return netip.AddrPortFrom(w.vip.Addr(), port) }

// closed checks that an address refuses at once, over TCP and UDP, clients near
// and far.
func (w world) closed(t *testing.T, at netip.AddrPort) {
	t.Helper()
	for _, from := range []*testnet.Host{w.Client, w.Balancer} {
		for _, network := range []string{"tcp", "udp"} {
			if err := wantRefusal(t, from, network, at); err != nil {
				t.Errorf("%s asks %s %s: %v", from.Name(), network, at, err)
			}
		}
	}
}

// wantRefusal says what else than a refusal a client hears within a second.
func wantRefusal(t *testing.T, from *testnet.Host, network string, at netip.AddrPort) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c, err := from.DialContext(ctx, network, netip.AddrPort{}, at)
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err = c.Write([]byte("?")); err == nil {
			_, err = c.Read(make([]byte, 64))
		}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("want a refusal, got %w", orAnswer(err))
	}
	return nil
}

func orAnswer(err error) error {
	if err == nil {
		return errors.New("an answer")
	}
	return err
}

// exposed checks that the stand-in answers at an address, from near and far.
func (w world) exposed(t *testing.T, at netip.AddrPort) {
	t.Helper()
	for _, from := range []*testnet.Host{w.Client, w.Balancer} {
		if name, err := from.AskName(at); err != nil || name != "ssh" {
			t.Errorf("%s asks tcp %s: %q, %v", from.Name(), at, name, err)
		}
	}
}

// open is exposed, over UDP too: the address must be the one that the host would
// answer from.
func (w world) open(t *testing.T, at netip.AddrPort) {
	t.Helper()
	w.exposed(t, at)
	for _, from := range []*testnet.Host{w.Client, w.Balancer} {
		c, err := from.Dial("udp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got, err := exchange(c, []byte("?")); err != nil || !strings.HasPrefix(string(got), "ssh") {
			t.Errorf("%s asks udp %s: %q, %v", from.Name(), at, got, err)
		}
	}
}

// both is the configuration of a TCP and a UDP service at the VIP's port 80.
func (w world) both(capture string) string {
	udp := strings.ReplaceAll(strings.TrimPrefix(w.udpService(nil), "services:\n"), "name: web", "name: dns")
	return "capture: " + capture + "\n" + w.service(nil) + udp
}

// serveBoth makes every backend answer over TCP and UDP.
func (w world) serveBoth(t *testing.T) {
	t.Helper()
	w.serveNamed()
	for i, h := range w.Backends {
		serveUDP(t, h, w.backend(i), named(h.Name()))
	}
}

// works checks that both services answer.
func (w world) works(t *testing.T) {
	t.Helper()
	for _, from := range []*testnet.Host{w.Client, w.Balancer} {
		if name, err := from.AskName(w.vip); err != nil || name != "backend1" {
			t.Errorf("%s asks tcp %s: %q, %v", from.Name(), w.vip, name, err)
		}
	}
	if got, err := exchange(w.udp(t, w.vip), []byte("hello")); err != nil || string(got) != "backend1 hello" {
		t.Errorf("udp %s: %q, %v", w.vip, got, err)
	}
}

// A program that listens on the wildcard address is not reachable at any VIP,
// and still is at the host's own addresses.
func TestGuard(t *testing.T) {
	for _, capture := range []string{"auto", "sklookup", "anyip"} {
		t.Run(capture, func(t *testing.T) {
			bothFamilies(t, 1, func(t *testing.T, w world) {
				w.standIn(t)
				w.serveBoth(t)
				b := start(t, w.Balancer, w.both(capture))
				w.works(t)
				w.closed(t, w.vipAt(sshPort))
				w.closed(t, w.vipAt(79))
				w.open(t, netip.AddrPortFrom(w.addr(w.Balancer), sshPort))
				if s := b.log.String(); strings.Contains(s, "no guard") {
					t.Errorf("it says that there is no guard:\n%s", s)
				}
				if n := b.metric("baton_drops_total", `reason="closed-port"`); n < 8 {
					t.Errorf("%v refusals are counted, want at least 8", n)
				}
				b.signal(syscall.SIGTERM)
				b.exits(10 * time.Second)
				b.gone(w)
			})
		})
	}
}

// A frontend may have the port of a program that listens on the wildcard: each
// is reached at its own addresses. Without usable backends it refuses, and the
// program does not take its place.
func TestGuardAtATakenPort(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		own := netip.AddrPortFrom(w.addr(w.Balancer), sshPort)
		w.vip = w.vipAt(sshPort)
		w.standIn(t)
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil))
		if name := w.who(t); name != "backend1" {
			t.Errorf("%s answers", name)
		}
		w.open(t, own)
		b.configure(w.service([]string{fmt.Sprintf("{address: %q, state: down}", w.backend(0))}))
		eventually(t, "the frontend refuses", func() error { return wantRefusal(t, w.Client, "tcp", w.vip) })
		w.closed(t, w.vip)
		w.open(t, own)
		b.configure(w.service(nil))
		eventually(t, "it answers again", func() error { _, err := w.Client.AskName(w.vip); return err })
		if name := w.who(t); name != "backend1" {
			t.Errorf("%s answers", name)
		}
	})
}

// The guard follows reloads: VIPs and frontends that come and go.
func TestGuardFollowsReloads(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.standIn(t)
		w.serveBoth(t)
		other := w
		other.vip = w.otherVIP()
		b := start(t, w.Balancer, w.both("auto"))
		b.configure(other.both("auto"))
		eventually(t, "the other VIP answers", func() error { _, err := w.Client.AskName(other.vip); return err })
		eventually(t, "the first VIP has gone", func() error {
			if vips := vipRoutes(t, w.Balancer); len(vips) != 1 || vips[0] != other.vip.Addr().String() {
				return fmt.Errorf("there are %v", vips)
			}
			return nil
		})
		other.works(t)
		other.closed(t, other.vipAt(sshPort))

		moved := other
		moved.vip = other.vipAt(8443)
		b.configure(moved.both("auto"))
		eventually(t, "the other port answers", func() error { _, err := w.Client.AskName(moved.vip); return err })
		moved.works(t)
		other.closed(t, other.vip)
		other.closed(t, other.vipAt(sshPort))

		b.configure("services: []\n")
		b.noRoutes(w)
		w.open(t, netip.AddrPortFrom(w.addr(w.Balancer), sshPort))
	})
}

// The guard ends with its process, and the next one brings its own.
func TestGuardAfterAKill(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.standIn(t)
		w.serveBoth(t)
		dir := t.TempDir()
		for range 2 {
			b := launchIn(t, w.Balancer, dir, w.both("auto"))
			b.waitServing()
			w.works(t)
			w.closed(t, w.vipAt(sshPort))
			_ = b.stop(syscall.SIGKILL)
			// The routes are left, nothing stands before them, and nothing of the
			// frontends answers.
			w.exposed(t, w.vipAt(sshPort))
			w.closed(t, w.vip)
		}
	})
}

// While it stops a VIP refuses, at its frontends too.
func TestGuardWhileStopping(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.standIn(t)
		w.vip = w.vipAt(sshPort)
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil))
		c, _ := w.named(t)
		b.signal(syscall.SIGTERM)
		b.waitLog("msg=stopping")
		eventually(t, "the frontend refuses", func() error { return wantRefusal(t, w.Client, "tcp", w.vip) })
		w.closed(t, w.vip)
		c.works(t)
		c.Close()
		b.exits(10 * time.Second)
		b.gone(w)
	})
}

// Without the right to load a guard everything works, and the log says what is
// exposed; who asks for sklookup is told that it cannot be had.
func TestWithoutAGuard(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.standIn(t)
		w.serveBoth(t)
		without := func(b *baton) {
			b.cmd.Path, b.cmd.Args = "/usr/bin/setpriv", append([]string{"setpriv", "--bounding-set", "-bpf,-sys_admin"}, b.cmd.Args...)
		}
		b := prepare(t, w.Balancer, t.TempDir(), w.both("auto"))
		without(b)
		b.run()
		b.waitServing()
		w.works(t)
		w.exposed(t, w.vipAt(sshPort))
		for _, want := range []string{"no guard", "CAP_BPF", fmt.Sprintf("tcp [::]:%d by ", sshPort)} {
			b.waitLog(want)
		}
		_ = b.stop(syscall.SIGTERM)

		b = prepare(t, w.Balancer, t.TempDir(), w.both("sklookup"))
		without(b)
		b.run()
		if err := b.cmd.Wait(); err == nil {
			t.Error("it runs with capture: sklookup")
		}
		b.waitLog("capture sklookup: attach guard: no permission: needs CAP_BPF")
	})
}
