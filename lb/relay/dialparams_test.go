package relay

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// Every parameter of a dial is what the socket says that it has.
func TestDialParams(t *testing.T) {
	needsNamespace(t) // SO_MARK and IP_TRANSPARENT
	get := func(t *testing.T, fd, level, name int) int {
		t.Helper()
		v, err := unix.GetsockoptInt(fd, level, name)
		if err != nil {
			t.Errorf("option %d/%d: %v", level, name, err)
		}
		return v
	}
	type option struct{ level, name, want int }
	always := []option{
		{unix.SOL_SOCKET, unix.SO_PROTOCOL, unix.IPPROTO_TCP}, // not MPTCP
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1},
		{unix.SOL_SOCKET, unix.SO_OOBINLINE, 1},
	}
	alive := KeepAlive{Idle: time.Minute, PeerLost: 2 * time.Minute}
	for name, tt := range map[string]struct {
		params  DialParams
		options []option
	}{
		"usual": {DialParams{KeepAlive: alive}, []option{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 30},
			{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 120_000},
			{unix.SOL_SOCKET, unix.SO_MARK, 0},
			{unix.IPPROTO_IP, unix.IP_TRANSPARENT, 0},
		}},
		"short": {DialParams{KeepAlive: KeepAlive{Idle: 1500 * time.Millisecond, PeerLost: 200 * time.Millisecond}}, []option{
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 2},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1},
			{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 200},
		}},
		"longer than the kernel takes": {DialParams{KeepAlive: KeepAlive{Idle: math.MaxInt64, PeerLost: math.MaxInt64}}, []option{
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 32767},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 32767},
			{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, math.MaxInt32},
		}},
		"no keepalive": {DialParams{KeepAlive: KeepAlive{Off: true}}, []option{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0}, {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 0},
		}},
		"mark": {DialParams{KeepAlive: alive, Mark: 0x4242}, []option{{unix.SOL_SOCKET, unix.SO_MARK, 0x4242}}},
		"port": {DialParams{KeepAlive: alive, Local: netip.AddrPortFrom(netip.Addr{}, 61234)}, []option{
			{unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 0},
		}},
		"address": {DialParams{KeepAlive: alive, Local: netip.MustParseAddrPort("127.0.3.3:0")}, []option{
			{unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1},
		}},
		"address and port": {DialParams{KeepAlive: alive, Local: netip.MustParseAddrPort("127.0.3.3:61235")}, nil},
		"IPv6":             {DialParams{KeepAlive: alive, Local: netip.MustParseAddrPort("[::1]:0")}, nil},
		"segments":         {DialParams{KeepAlive: alive, MSS: 1000}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			addr := listenAt(t, "127.0.2.1:0")
			if tt.params.Local.Addr().Is6() {
				addr = listenAt(t, "[::1]:0")
			}
			fd, err := dialTCP(tt.params, addr)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := waitConnected(fd); err != nil {
				t.Fatal(err)
			}
			for _, o := range append(always, tt.options...) {
				if got := get(t, fd, o.level, o.name); got != o.want {
					t.Errorf("option %d/%d is %d, want %d", o.level, o.name, got, o.want)
				}
			}
			if mss := get(t, fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG); tt.params.MSS != 0 && mss > tt.params.MSS {
				t.Errorf("segments have up to %d bytes, want %d", mss, tt.params.MSS)
			}
			l, err := unix.GetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER)
			if err != nil || l.Onoff != 1 || l.Linger != 0 {
				t.Errorf("closing it is no reset: %+v, %v", l, err)
			}
			checkLocal(t, fd, tt.params.Local)
		})
	}
}

// checkLocal checks what of the local address was asked for.
func checkLocal(t *testing.T, fd int, want netip.AddrPort) {
	t.Helper()
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	local := addrPort(sa)
	if want.Addr().IsValid() && local.Addr() != want.Addr() || want.Port() != 0 && local.Port() != want.Port() {
		t.Errorf("connected from %s, want %s", local, want)
	}
}

// listenAt listens until the test ends.
func listenAt(t testing.TB, at string) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	s := testnet.ServeListener(ln, testnet.Echo)
	t.Cleanup(s.Close)
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// Transparent binds to an address that this host does not have.
func TestDialTransparent(t *testing.T) {
	needsNamespace(t)
	for from, to := range map[string]string{"192.0.2.99:0": "127.0.2.1:1", "[2001:db8::99]:0": "[::1]:1"} {
		p := DialParams{Local: netip.MustParseAddrPort(from)}
		for _, transparent := range []bool{false, true} {
			p.Transparent = transparent
			fd, err := unix.Socket(family(p.Local.Addr()), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			err = p.bind(fd, netip.MustParseAddrPort(to).Addr())
			unix.Close(fd)
			if transparent && err != nil || !transparent && !errors.Is(err, unix.EADDRNOTAVAIL) {
				t.Errorf("bind to %s, transparent %v: %v", from, transparent, err)
			}
		}
	}
}

// A dial that fails leaves no descriptor.
func TestDialLeaksNothing(t *testing.T) {
	before := descriptors(t)
	addr := nobody(t)
	for range 10 {
		if fd, err := dialTCP(DialParams{Local: netip.MustParseAddrPort("192.0.2.99:0")}, addr); !errors.Is(err, unix.EADDRNOTAVAIL) || fd != -1 {
			t.Errorf("descriptor %d, %v", fd, err)
		}
	}
	if n := descriptors(t) - before; n > 0 {
		t.Errorf("%d descriptors are left", n)
	}
}

// What a client's socket inherits from its listener is what a service asks for.
func TestListenerOptions(t *testing.T) {
	addr := make(chan int, 1)
	w := newWorld(t, Options{Loops: 1})
	at, _ := backend(t, testnet.Echo)
	s := service("web", vip, at)
	s.Timeouts.KeepAlive, s.Timeouts.PeerLost = 7*time.Second, 90*time.Second
	w.serve(s)
	c := dial(t, vip)
	if err := testnet.Ask(c, "there?"); err != nil {
		t.Fatal(err)
	}
	worker := w.relay.workers[0]
	if err := worker.loop.Call(func() {
		for f := range worker.flows {
			addr <- f.front.fd
		}
	}); err != nil {
		t.Fatal(err)
	}
	fd := <-addr
	for _, o := range []struct{ level, name, want int }{
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 7}, {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 90_000},
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1}, {unix.SOL_SOCKET, unix.SO_OOBINLINE, 1},
	} {
		if got, err := unix.GetsockoptInt(fd, o.level, o.name); got != o.want {
			t.Errorf("option %d/%d is %d (%v), want %d", o.level, o.name, got, err, o.want)
		}
	}
}
