package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// sysctl sets a setting of the test's network namespace until the test ends.
func sysctl(t testing.TB, name, value string) {
	t.Helper()
	needsNamespace(t)
	path := filepath.Join("/proc/sys/net/ipv4", name)
	before, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(value), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(path, before, 0) })
}

// Every errno of a dial has its place, and only those that are the backend's
// fault count against it.
func TestDialFailures(t *testing.T) {
	for _, tt := range []struct {
		errno  unix.Errno
		dial   flow.DialFailure // when connect(2) returns it
		answer flow.DialFailure // when it comes later
	}{
		{unix.ECONNREFUSED, flow.DialRefused, flow.DialRefused},
		{unix.ETIMEDOUT, flow.DialTimeout, flow.DialTimeout},
		{unix.ENETUNREACH, flow.DialUnreachable, flow.DialUnreachable},
		{unix.EHOSTUNREACH, flow.DialUnreachable, flow.DialUnreachable},
		{unix.EHOSTDOWN, flow.DialUnreachable, flow.DialUnreachable},
		{unix.ENETDOWN, flow.DialUnreachable, flow.DialUnreachable},
		{unix.ENOPROTOOPT, flow.DialUnreachable, flow.DialUnreachable},
		{unix.EPROTO, flow.DialUnreachable, flow.DialUnreachable},
		{unix.ECONNRESET, flow.DialReset, flow.DialReset},
		{unix.EPIPE, flow.DialReset, flow.DialReset},
		{unix.EADDRNOTAVAIL, flow.DialNoPorts, flow.DialNoPorts},
		{unix.EADDRINUSE, flow.DialNoPorts, flow.DialNoPorts},
		{unix.EMFILE, flow.DialNoResources, flow.DialNoResources},
		{unix.ENFILE, flow.DialNoResources, flow.DialNoResources},
		{unix.ENOBUFS, flow.DialNoResources, flow.DialNoResources},
		{unix.ENOMEM, flow.DialNoResources, flow.DialNoResources},
		{unix.EACCES, flow.DialLocal, flow.DialUnreachable},
		{unix.EPERM, flow.DialLocal, flow.DialUnreachable},
		{unix.EINVAL, flow.DialLocal, flow.DialUnreachable},
	} {
		if got := dialFailure(fmt.Errorf("wrapped: %w", tt.errno)); got != tt.dial {
			t.Errorf("%v of connect is %q, want %q", tt.errno, got, tt.dial)
		}
		if got := answerFailure(tt.errno); got != tt.answer {
			t.Errorf("%v as an answer is %q, want %q", tt.errno, got, tt.answer)
		}
	}
}

// How an established connection breaks has few names.
func TestEndReasons(t *testing.T) {
	for errno, want := range map[unix.Errno]flow.Reason{
		unix.ECONNRESET: flow.ReasonReset, unix.EPIPE: flow.ReasonReset,
		unix.ETIMEDOUT: flow.ReasonPeerLost, unix.EHOSTUNREACH: flow.ReasonPeerLost, unix.ENETUNREACH: flow.ReasonPeerLost,
		unix.EACCES: flow.ReasonNetworkError, unix.EIO: flow.ReasonNetworkError,
	} {
		if got := endReason(errno); got != want {
			t.Errorf("%v is %q, want %q", errno, got, want)
		}
	}
}

// A backend that refuses is passed over for the next; when all refuse, the
// client is reset and the record says whose fault that was.
func TestFailover(t *testing.T) {
	w := newWorld(t, Options{})
	live, server := backend(t, testnet.Named("live"))
	dead := nobody(t)
	w.serve(service("web", vip, dead, live))
	for range 4 {
		c := dial(t, vip)
		if name, err := testnet.ReadName(c); name != "live" {
			t.Fatalf("got %q, %v", name, err)
		}
		c.Close()
	}
	server.Close()
	wantReset(t, vip)
	w.wantEnded(flow.ByBackend, flow.ReasonDialFailed)
}

// A dial to a port of this host at which nobody listens may connect to itself,
// when the kernel chooses that very port. That is a refusal, and no backend that
// says everything its client says.
func TestConnectedToItself(t *testing.T) {
	sysctl(t, "ip_local_port_range", "40000 40000") // the kernel has no choice
	w := newWorld(t, Options{Loops: 1})
	self := netip.MustParseAddrPort("127.0.2.1:40000")
	s := service("web", vip, self)
	w.relay.sources.v4 = []netip.Addr{self.Addr()} // loopback addresses connect from 127.0.0.1 otherwise
	w.serve(s)
	sysctl(t, "ip_local_port_range", "40000 40001") // one for the client
	wantReset(t, vip)
	w.wantEnded(flow.ByBackend, flow.ReasonDialFailed)
	if n := w.registry.Acquire("web", self).Failures(); n == 0 {
		t.Error("the backend has no failures")
	}
}

// The host's own troubles with one backend, as a route that prohibits, lead to
// the next, and never count as failures of the backend.
func TestLocalTrouble(t *testing.T) {
	needsNamespace(t)
	prohibit(t, "198.51.100.1")
	w := newWorld(t, Options{})
	live, _ := backend(t, testnet.Named("live"))
	prohibited := netip.MustParseAddrPort("198.51.100.1:80")
	w.serve(service("web", vip, prohibited, live))
	for range 4 {
		c := dial(t, vip)
		if name, err := testnet.ReadName(c); name != "live" {
			t.Fatalf("got %q, %v", name, err)
		}
		c.Close()
	}
	w.serve(service("web", vip, prohibited))
	wantReset(t, vip)
	w.wantEnded(flow.ByBaton, flow.ReasonDialFailed)
	load := w.registry.Acquire("web", prohibited)
	if n := load.Failures(); n != 0 {
		t.Errorf("the backend has %d failures", n)
	}
	if n := w.registry.DropCounts()[flow.DropNoDescriptors]; n != 0 {
		t.Errorf("%d drops for want of descriptors", n)
	}
}

// When every port towards the only backend is taken, the client is reset for
// want of ports; with another backend it gets that one. The backend is not
// blamed.
func TestNoPorts(t *testing.T) {
	w := newWorld(t, Options{Source: SourceParams{FirstPort: 61000, LastPort: 61000}})
	a, _ := backend(t, testnet.Named("a"))
	b, _ := backend(t, testnet.Named("b"))
	w.serve(service("web", vip, a))
	first := dial(t, vip)
	if name, err := testnet.ReadName(first); name != "a" {
		t.Fatal(err)
	}
	wantReset(t, vip)
	w.wantEnded(flow.ByBaton, flow.ReasonLocalResources)
	if n := w.registry.DropCounts()[flow.DropNoPorts]; n != 1 {
		t.Errorf("%d drops for want of ports, want 1", n)
	}
	if n := w.registry.Acquire("web", a).Failures(); n != 0 {
		t.Errorf("the backend has %d failures", n)
	}

	w.serve(service("web", vip, a, b))
	c := dial(t, vip)
	if name, err := testnet.ReadName(c); name != "b" {
		t.Errorf("got %q, %v", name, err)
	}
}

// A backend that accepts and says nothing to SYNs costs the time for a connect.
func TestDialTimeout(t *testing.T) {
	w := newWorld(t, Options{})
	full := fullBacklog(t)
	live, _ := backend(t, testnet.Named("live"))
	s := service("web", vip, full, live)
	s.Timeouts.Connect = 200 * time.Millisecond
	w.serve(s)
	for range 2 {
		start := time.Now()
		c := dial(t, vip)
		if name, err := testnet.ReadName(c); name != "live" {
			t.Fatalf("got %q, %v", name, err)
		}
		c.Close()
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("it took %v", d)
		}
	}
}

// fullBacklog is a listener that answers no SYN any more.
func fullBacklog(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 2, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := addrPort(sa)
	for { // until one hangs
		c, err := net.DialTimeout("tcp", addr.String(), 100*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
}

// What a client has sent and closed while its backend was being dialled arrives
// whole, and the answer too.
func TestHalfCloseWhileDialing(t *testing.T) {
	w := newWorld(t, Options{})
	full := fullBacklog(t)
	got := make(chan string, 1)
	live, _ := backend(t, func(c net.Conn) {
		b, err := io.ReadAll(c)
		got <- fmt.Sprint(string(b), err)
		_, _ = io.WriteString(c, "answer")
	})
	s := service("web", vip, full, live)
	s.Timeouts.Connect = 300 * time.Millisecond
	w.serve(s)
	for range 2 { // whichever backend is first
		c := dial(t, vip)
		_, _ = io.WriteString(c, "question")
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(c)
		if string(b) != "answer" || err != nil {
			t.Errorf("the client got %q, %v", b, err)
		}
		if s := <-got; s != "question<nil>" {
			t.Errorf("the backend got %q", s)
		}
		wantEnd(t, w.ended(c.LocalAddr()), flow.ByClient, flow.ReasonClosed)
	}
}

// A client that resets the connection while its backend is being dialled: what
// it had sent is delivered first; one that sent nothing ends the flow at once.
func TestResetWhileDialing(t *testing.T) {
	for _, text := range []string{"", "last words"} {
		w := newWorld(t, Options{})
		full := fullBacklog(t)
		got := make(chan string, 1)
		live, _ := backend(t, func(c net.Conn) {
			b, err := io.ReadAll(c)
			got <- fmt.Sprint(string(b), " ", errors.Is(err, unix.ECONNRESET))
		})
		s := service("web", vip, full, live)
		s.Backends[1].Priority = 1 // second
		s.Timeouts.Connect = 300 * time.Millisecond
		w.serve(s)
		c := dial(t, vip)
		w.record(flow.Dialing)
		if text != "" {
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
		}
		addr := c.LocalAddr()
		testnet.Reset(c)
		if text != "" {
			if s := receive(t, got); s != text+" true" {
				t.Errorf("the backend got %q", s)
			}
		}
		wantEnd(t, w.ended(addr), flow.ByClient, flow.ReasonReset)
		w.close()
	}
}

func receive[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return v
}
