package bpf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What a client sees.
var (
	errRefused = errors.New("refused")
	errSilence = errors.New("silence")
)

// ground is a host with a guard, VIPs, and a program that listens at every address of it.
type ground struct {
	client, host *testnet.Host
	guard        *Guard
}

const sshPort = 22

var vips = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd96::10")}

func newGround(t *testing.T, o GuardOptions) *ground {
	t.Helper()
	star := testnet.NewStar(t, 0)
	g := &ground{client: star.Client, host: star.Balancer}
	g.guard = newGuardOn(t, g.host, o)
	// A host sends few ICMP errors to one client; the tests hear more than that.
	g.host.Sysctl("net.ipv4.icmp_ratelimit", "0")
	g.host.Sysctl("net.ipv6.icmp.ratelimit", "0")
	for _, vip := range vips {
		g.host.AddAddr("lo", netip.PrefixFrom(vip, vip.BitLen()))
	}
	g.host.Serve(sshPort, testnet.Named("ssh"))
	for _, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		g.serveUDP(t, netip.AddrPortFrom(any, sshPort), "ssh")
	}
	return g
}

// newGuard attaches a guard to a host that has nothing else.
func newGuard(t testing.TB, o GuardOptions) *Guard {
	t.Helper()
	return newGuardOn(t, testnet.New(t).Host("guarded"), o)
}

func newGuardOn(t testing.TB, h *testnet.Host, o GuardOptions) (guard *Guard) {
	t.Helper()
	var err error
	h.Do(func() { guard, err = AttachGuard(o) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := guard.Close(); err != nil {
			t.Error(err)
		}
	})
	return guard
}

// serveUDP answers every datagram with a name, from the address that was asked.
func (g *ground) serveUDP(t *testing.T, at netip.AddrPort, name string) {
	t.Helper()
	network, level, option := "udp4", unix.IPPROTO_IP, unix.IP_PKTINFO
	if at.Addr().Is6() {
		network, level, option = "udp6", unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	pc, err := g.host.ListenPacket(network, at)
	if err != nil {
		t.Fatal(err)
	}
	conn := pc.(*net.UDPConn)
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) })
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b, oob := make([]byte, 64), make([]byte, 64)
		for {
			_, n, _, from, err := conn.ReadMsgUDPAddrPort(b, oob)
			if err != nil {
				return
			}
			_, _, _ = conn.WriteMsgUDPAddrPort([]byte(name), oob[:n], from)
		}
	}()
	t.Cleanup(func() { _ = pc.Close(); <-done })
}

// serve listens at one address with a named server, of either protocol.
func (g *ground) serve(t *testing.T, k lb.FrontendKey, name string) {
	t.Helper()
	if k.Proto == flow.UDP {
		g.serveUDP(t, k.Address, name)
		return
	}
	s := g.host.ServeAddr(k.Address, testnet.Named(name))
	t.Cleanup(s.Close)
}

// How long a client waits for what must come, and before it calls it silence.
const (
	patience     = 10 * time.Second
	silenceAfter = 400 * time.Millisecond
)

// ask says who answers at an address, or errRefused, or errSilence. It waits as long as what is wanted takes.
func ask(client *testnet.Host, k lb.FrontendKey, want error) (string, error) {
	within := patience
	if want == errSilence {
		within = silenceAfter
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	conn, err := client.DialContext(ctx, k.Proto.String(), netip.AddrPort{}, k.Address)
	if err != nil {
		return "", outcome(err)
	}
	defer conn.Close()
	if k.Proto == flow.TCP {
		_ = conn.SetDeadline(time.Now().Add(within))
		name, err := testnet.ReadName(conn)
		return name, outcome(err)
	}
	b := make([]byte, 64)
	for {
		if _, err := conn.Write([]byte("?")); err != nil {
			return "", outcome(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(silenceAfter))
		n, err := conn.Read(b)
		if err = outcome(err); err != errSilence || ctx.Err() != nil { // else it may have got lost
			return string(b[:n]), err
		}
	}
}

func outcome(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return errRefused
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return errSilence
	}
	return err
}

func (g *ground) expect(t *testing.T, k lb.FrontendKey, name string, want error) {
	t.Helper()
	for _, from := range []*testnet.Host{g.client, g.host} {
		got, err := ask(from, k, want)
		if got != name || !errors.Is(err, want) {
			t.Errorf("%s asks %s: got %q, %v; want %q, %v", from.Name(), k, got, err, name, want)
		}
	}
}

// eachKind runs a test for both protocols at both VIPs.
func eachKind(t *testing.T, f func(t *testing.T, at func(port uint16) lb.FrontendKey)) {
	for _, proto := range []flow.Proto{flow.TCP, flow.UDP} {
		for _, vip := range vips {
			t.Run(fmt.Sprintf("%s %s", proto, vip), func(t *testing.T) {
				f(t, func(port uint16) lb.FrontendKey {
					return lb.FrontendKey{Proto: proto, Address: netip.AddrPortFrom(vip, port)}
				})
			})
		}
	}
}

func (g *ground) update(t *testing.T, u GuardUpdate) {
	t.Helper()
	if err := g.guard.Update(u); err != nil {
		t.Fatal(err)
	}
}
