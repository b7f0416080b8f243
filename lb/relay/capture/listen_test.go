package capture

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// listenOn listens on a host until the test ends.
func listenOn(t testing.TB, h *testnet.Host, addr netip.AddrPort, p ListenParams) *Listener {
	t.Helper()
	l, err := tryListen(h, addr, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func tryListen(h *testnet.Host, addr netip.AddrPort, p ListenParams) (l *Listener, err error) {
	h.Do(func() { l, err = Listen(addr, p) })
	return l, err
}

func TestListenOptions(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := Listen(netip.MustParseAddrPort(at), ListenParams{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if l.Addr().Port() == 0 || l.Addr().Addr() != netip.MustParseAddrPort(at).Addr() {
			t.Errorf("%s: bound to %s", at, l.Addr())
		}
		want := []struct {
			name          string
			level, option int
			value         int
		}{
			{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1},
			{"SO_REUSEPORT", unix.SOL_SOCKET, unix.SO_REUSEPORT, 0},
			{"SO_PROTOCOL", unix.SOL_SOCKET, unix.SO_PROTOCOL, unix.IPPROTO_TCP},
			{"SO_ACCEPTCONN", unix.SOL_SOCKET, unix.SO_ACCEPTCONN, 1},
			{"TCP_DEFER_ACCEPT", unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 0},
		}
		if l.Addr().Addr().Is6() {
			want = append(want, struct {
				name          string
				level, option int
				value         int
			}{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1})
		}
		for _, w := range want {
			if got, err := unix.GetsockoptInt(l.FD(), w.level, w.option); got != w.value || err != nil {
				t.Errorf("%s: %s is %d, %v; want %d", at, w.name, got, err, w.value)
			}
		}
		status, _ := unix.FcntlInt(uintptr(l.FD()), unix.F_GETFL, 0)
		flags, _ := unix.FcntlInt(uintptr(l.FD()), unix.F_GETFD, 0)
		if status&unix.O_NONBLOCK == 0 || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("%s: status %#x, flags %#x", at, status, flags)
		}
	}
}

// TestListenNeeds shows what each family needs of an address that is local by a route only.
func TestListenNeeds(t *testing.T) {
	testnet.RequireRoot(t)
	lb := testnet.NewStar(t, 0).Balancer
	for _, tt := range vipTests {
		t.Run(tt.family, func(t *testing.T) {
			at := netip.AddrPortFrom(addr(tt.vip), 80)
			_, err := tryListen(lb, at, ListenParams{})
			if !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), "ip addr add "+tt.vip) {
				t.Fatalf("no route: %v", err)
			}
			r, _ := open(t, lb, "")
			ensure(t, r, at.Addr())
			l, err := tryListen(lb, at, ListenParams{})
			if at.Addr().Is6() != errors.Is(err, ErrAbsent) {
				t.Fatalf("with a route: %v", err)
			}
			if l != nil {
				_ = l.Close()
			}
			listenOn(t, lb, at, ListenParams{AnyIP: true})
		})
	}
}

func TestListenErrors(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.NewStar(t, 0).Balancer
	me := fmt.Sprintf("%s (pid %d)", processName("/proc/self"), os.Getpid())
	for _, ip := range []netip.Addr{h.IP4, h.IP6} {
		at := netip.AddrPortFrom(ip, 80)
		l := listenOn(t, h, at, ListenParams{})
		_, err := tryListen(h, at, ListenParams{})
		if want := fmt.Sprintf("address is in use by %s on %s", me, at); !errors.Is(err, ErrInUse) || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		_ = l.Close()
		if err := l.Close(); err != nil || l.FD() != -1 {
			t.Errorf("closed twice: %v, fd %d", err, l.FD())
		}
		listenOn(t, h, at, ListenParams{})
	}
	for _, wildcard := range []string{"0.0.0.0:81", "[::]:81"} {
		w := netip.MustParseAddrPort(wildcard)
		at := netip.AddrPortFrom(h.IP4, 81)
		if w.Addr().Is6() {
			at = netip.AddrPortFrom(h.IP6, 81)
		}
		listenOn(t, h, w, ListenParams{})
		if _, err := tryListen(h, at, ListenParams{}); !errors.Is(err, ErrInUse) || !strings.HasSuffix(err.Error(), me+" on "+wildcard) {
			t.Errorf("beside a wildcard: %v", err)
		}
	}
	for _, at := range []netip.AddrPort{{}, netip.MustParseAddrPort("[fe80::1%nosuchdevice]:80")} {
		if _, err := tryListen(h, at, ListenParams{}); err == nil {
			t.Errorf("%v is fine", at)
		}
	}
}

func TestExplainListen(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:80")
	for errno, want := range map[unix.Errno]error{
		unix.EACCES: ErrPermission, unix.EPERM: ErrPermission, unix.EAFNOSUPPORT: ErrNoFamily,
		unix.EADDRNOTAVAIL: ErrAbsent, unix.EADDRINUSE: ErrInUse, unix.EMFILE: unix.EMFILE,
	} {
		if err := Explain(fmt.Errorf("open socket: %w", errno), "tcp", at); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", errno, err, want)
		}
	}
}

// TestListenWithoutPermission binds a low port without the capability for it.
func TestListenWithoutPermission(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.NewStar(t, 0).Balancer
	h.Sysctl("net.ipv4.ip_unprivileged_port_start", "1024")
	var err error
	h.Do(func() { // the capability is the thread's
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var before [2]unix.CapUserData
		if err = unix.Capget(&header, &before[0]); err != nil {
			return
		}
		without := before
		without[0].Effective &^= 1 << unix.CAP_NET_BIND_SERVICE
		if err = unix.Capset(&header, &without[0]); err != nil {
			return
		}
		_, err = Listen(netip.AddrPortFrom(h.IP4, 80), ListenParams{})
		if restore := unix.Capset(&header, &before[0]); restore != nil {
			panic(restore)
		}
	})
	if !errors.Is(err, ErrPermission) || !errors.Is(err, unix.EACCES) {
		t.Fatal(err)
	}
}

func TestNewListenerFromFD(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", at) // Go makes it an MPTCP one
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		f, err := ln.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_, err = NewListenerFromFD(int(f.Fd()))
		proto, _ := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_PROTOCOL)
		if (proto == unix.IPPROTO_TCP) != (err == nil) || err != nil && !errors.Is(err, ErrNotListening) {
			t.Errorf("protocol %d: %v", proto, err)
		}
		plain, err := Listen(netip.MustParseAddrPort(at), ListenParams{})
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		fd, err := unix.Dup(plain.FD())
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.SetNonblock(fd, false)
		l, err := NewListenerFromFD(fd)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		status, _ := unix.FcntlInt(uintptr(l.FD()), unix.F_GETFL, 0)
		if l.Addr() != plain.Addr() || status&unix.O_NONBLOCK == 0 {
			t.Errorf("address %s, status %#x", l.Addr(), status)
		}
	}
	for name, make := range map[string]func() (int, error){
		"udp":           func() (int, error) { return unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0) },
		"not listening": func() (int, error) { return unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0) },
		"unix":          func() (int, error) { return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0) },
		"mptcp":         func() (int, error) { return unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP) },
		"a file":        func() (int, error) { return unix.Open("/dev/null", unix.O_RDONLY, 0) },
		"closed":        func() (int, error) { return 1 << 20, nil },
	} {
		fd, err := make()
		if err != nil {
			t.Logf("%s: %v", name, err) // a kernel without MPTCP has none to refuse
			continue
		}
		if _, err := NewListenerFromFD(fd); !errors.Is(err, ErrNotListening) {
			t.Errorf("%s: %v", name, err)
		}
		_ = unix.Close(fd)
	}
}

// TestShare: the port stays taken until the last descriptor is closed.
func TestShare(t *testing.T) {
	l, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"), ListenParams{Backlog: 1})
	if err != nil {
		t.Fatal(err)
	}
	second, err := l.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	_ = l.Close()
	if _, err := l.Share(); err == nil {
		t.Error("a closed listener can be shared")
	}
	conn, err := net.Dial("tcp", second.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fd, _, err := unix.Accept4(second.FD(), unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
}
