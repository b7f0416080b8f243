package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// udpVIP is an address of the loopback device for UDP frontends.
var udpVIP = netip.MustParseAddrPort("127.0.1.1:53")

// udpOf makes a UDP service of one made by service.
func udpOf(s lb.Service) lb.Service {
	for i := range s.Frontends {
		s.Frontends[i].Proto = flow.UDP
	}
	return s
}

// udpBackend is a socket on the loopback device that answers with its name.
type udpBackend struct {
	t    testing.TB
	name string
	conn *net.UDPConn
	addr netip.AddrPort

	mu      sync.Mutex
	got     []string
	froms   map[netip.AddrPort]int
	silent  bool
	running sync.WaitGroup
}

func newUDPBackend(t testing.TB, name string) *udpBackend {
	t.Helper()
	return udpBackendAt(t, name, netip.MustParseAddrPort("127.0.2.1:0"))
}

func udpBackendAt(t testing.TB, name string, at netip.AddrPort) *udpBackend {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadBuffer(8 << 20)
	b := &udpBackend{t: t, name: name, conn: conn, addr: conn.LocalAddr().(*net.UDPAddr).AddrPort(), froms: make(map[netip.AddrPort]int)}
	b.running.Go(b.serve)
	t.Cleanup(b.close)
	return b
}

func (b *udpBackend) serve() {
	buf := make([]byte, 65536)
	for {
		n, from, err := b.conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		b.mu.Lock()
		b.got = append(b.got, string(buf[:n]))
		b.froms[from]++
		silent := b.silent
		b.mu.Unlock()
		if !silent {
			_, _ = b.conn.WriteToUDPAddrPort(append([]byte(b.name+" "), buf[:n]...), from)
		}
	}
}

func (b *udpBackend) close() {
	_ = b.conn.Close()
	b.running.Wait()
}

func (b *udpBackend) mute() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silent = true
}

// count is how many datagrams have come.
func (b *udpBackend) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

// senders lists the addresses from which datagrams have come.
func (b *udpBackend) senders() (all []netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a := range b.froms {
		all = append(all, a)
	}
	return all
}

// forget drops what is known of senders.
func (b *udpBackend) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.froms)
}

// wantCount waits until n datagrams have come in all.
func wantCount(t testing.TB, n int, backends ...*udpBackend) {
	t.Helper()
	testnet.Eventually(t, patience, fmt.Sprintf("%d datagrams have come", n), func() error {
		sum := 0
		for _, b := range backends {
			sum += b.count()
		}
		if sum != n {
			return fmt.Errorf("%d have", sum)
		}
		return nil
	})
}

// udpClientTo is a connected socket, closed with the test.
func udpClientTo(t testing.TB, to netip.AddrPort) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t testing.TB, c *net.UDPConn, data string) {
	t.Helper()
	if _, err := c.Write([]byte(data)); err != nil {
		t.Fatalf("send %q: %v", data, err)
	}
}

// take receives one datagram.
func take(c *net.UDPConn, within time.Duration) (string, error) {
	buf := make([]byte, 65536)
	_ = c.SetReadDeadline(time.Now().Add(within))
	n, err := c.Read(buf)
	return string(buf[:n]), err
}

// ask sends one datagram and wants an answer from one backend.
func ask(t testing.TB, c *net.UDPConn, b *udpBackend) {
	t.Helper()
	send(t, c, "x")
	if got, err := take(c, patience); err != nil || got != b.name+" x" {
		t.Fatalf("got %q, %v; want an answer of %s", got, err, b.name)
	}
}

// asked sends one datagram and returns who has answered.
func asked(t testing.TB, c *net.UDPConn) string {
	t.Helper()
	send(t, c, "x")
	got, err := take(c, patience)
	if err != nil {
		t.Fatal(err)
	}
	return got[:len(got)-2]
}

// refuses waits until a client is refused.
func refuses(t testing.TB, to netip.AddrPort) {
	t.Helper()
	testnet.Eventually(t, patience, "the frontend refuses", func() error {
		c := udpClientTo(t, to)
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		if got, err := take(c, 100*time.Millisecond); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("got %q, %v", got, err)
		}
		return nil
	})
}

// pause holds a loop until the returned function is called.
func (w *world) pause(loop int) (resume func()) {
	held, free := make(chan struct{}), make(chan struct{})
	w.relay.workers[loop].loop.Post(func() { close(held); <-free })
	<-held
	return sync.OnceFunc(func() { close(free) })
}

// sessions waits until n are live.
func (w *world) sessions(n int) []*flow.Record {
	w.t.Helper()
	var all []*flow.Record
	testnet.Eventually(w.t, patience, fmt.Sprintf("%d sessions are live", n), func() error {
		if all = w.registry.Records(); len(all) != n {
			return fmt.Errorf("%d are", len(all))
		}
		return nil
	})
	return all
}

// drops is how often something was dropped for a reason.
func (w *world) drops(why flow.Drop) uint64 { return w.registry.DropCounts()[why] }

// wantDrops waits for a count.
func (w *world) wantDrops(why flow.Drop, n uint64) {
	w.t.Helper()
	testnet.Eventually(w.t, patience, fmt.Sprintf("%d are dropped: %s", n, why), func() error {
		if got := w.drops(why); got != n {
			return fmt.Errorf("%d are; all: %v", got, w.registry.DropCounts())
		}
		return nil
	})
}

// frontendOf is a frontend of a service without anything.
func frontendOf(name string) *store.Frontend {
	return &store.Frontend{Service: &store.Service{Service: lb.Default(name)}}
}

// setHealth gives a verdict, and waits until it is programmed.
func (w *world) setHealth(service string, b *udpBackend, sick bool) {
	w.t.Helper()
	w.store.SetHealth(service, b.addr, store.Health{Unhealthy: sick})
	testnet.Eventually(w.t, patience, "the verdict is published", func() error {
		svc, _ := w.store.Snapshot().Service(service)
		if got, ok := svc.Backend(b.addr); !ok || got.Unhealthy != sick {
			return errors.New("it is not")
		}
		return nil
	})
	if err := w.store.Programmed(w.t.Context(), w.store.Snapshot().Revision); err != nil {
		w.t.Fatal(err)
	}
}
