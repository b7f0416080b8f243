package bpf

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// listenShared shares a listener that is bound to a loopback address.
func (g *ground) listenShared(t *testing.T, at netip.Addr) *net.TCPListener {
	t.Helper()
	ln, err := g.host.Listen("tcp", netip.AddrPortFrom(at, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	if err := g.share(ln.(*net.TCPListener)); err != nil {
		t.Fatal(err)
	}
	return ln.(*net.TCPListener)
}

func (g *ground) share(s syscall.Conn) (err error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	if controlErr := raw.Control(func(fd uintptr) { err = g.guard.Share(int(fd)) }); controlErr != nil {
		return controlErr
	}
	return err
}

func TestSharedListeners(t *testing.T) {
	g := newGround(t, GuardOptions{})
	loopback := map[bool]netip.Addr{true: netip.MustParseAddr("127.0.0.1"), false: netip.IPv6Loopback()}
	for _, vip := range vips {
		ln := g.listenShared(t, loopback[vip.Is4()])
		server := testnet.ServeListener(ln, func(c net.Conn) {
			_, _ = c.Write([]byte(c.LocalAddr().String() + "\n")) // says what was asked
		})
		t.Cleanup(server.Close)
		rules := make(map[lb.FrontendKey]Rule)
		for _, port := range []uint16{sshPort, 80, 65535} {
			rules[lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(vip, port)}] = Rule{All: AnswerShared}
		}
		g.update(t, GuardUpdate{Protect: []netip.Addr{vip}, Rules: rules})
		for k := range rules {
			g.expect(t, k, k.Address.String(), nil)
		}
		g.expect(t, lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(vip, 81)}, "", errRefused)
		own := lb.FrontendKey{Proto: flow.TCP, Address: ln.Addr().(*net.TCPAddr).AddrPort()}
		if name, err := ask(g.host, own, errRefused); err != errRefused {
			t.Errorf("the shared socket answers at its own address %s: %q, %v", own, name, err)
		}
		server.Close()
		for k := range rules {
			g.expect(t, k, "", errRefused)
		}
	}
}

func TestSilentSocketsAreNotReachable(t *testing.T) {
	g := newGround(t, GuardOptions{})
	if n := len(g.guard.silent); n != 4 {
		t.Fatalf("%d silent sockets, want one for each protocol and family", n)
	}
	for _, fd := range g.guard.silent {
		k, err := socketKey(fd)
		if err != nil {
			t.Fatal(err)
		}
		if name, err := ask(g.host, k, errRefused); err != errRefused {
			t.Errorf("%s: %q, %v", k, name, err)
		}
	}
}

func TestSharedUDPSocket(t *testing.T) {
	g := newGround(t, GuardOptions{})
	asked := netip.AddrPortFrom(vips[0], 53)
	pc, err := g.host.ListenPacket("udp4", netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	if err := g.share(pc.(*net.UDPConn)); err != nil {
		t.Fatal(err)
	}
	g.update(t, GuardUpdate{Rules: map[lb.FrontendKey]Rule{{Proto: flow.UDP, Address: asked}: {All: AnswerShared}}})
	client := dialUDP(t, g.client, netip.AddrPort{}, asked)
	if _, err := client.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	n, from, err := pc.ReadFrom(b)
	if err != nil || string(b[:n]) != "question" || from.String() != client.LocalAddr().String() {
		t.Errorf("got %q from %v, %v", b[:n], from, err)
	}
}

func TestSocketsThatCannotBeShared(t *testing.T) {
	g := newGround(t, GuardOptions{})
	for _, tt := range []struct {
		name string
		open func() (int, error)
	}{
		{"no descriptor", func() (int, error) { return -1, nil }},
		{"not listening", func() (int, error) { return unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP) }},
		{"not bound", func() (int, error) { return unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP) }},
		{"neither IPv4 nor IPv6", func() (int, error) { return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0) }},
	} {
		fd, err := tt.open()
		if err != nil {
			t.Fatal(err)
		}
		if err := g.guard.Share(fd); err == nil {
			t.Errorf("%s: shared", tt.name)
		}
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}
