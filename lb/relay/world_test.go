package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/pick"
	"github.com/baton-lb/baton/lb/store"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// world is a relay with all it needs, on the loopback device. When the test has
// closed its connections, everything that the relay counts must be back at zero.
type world struct {
	t        testing.TB
	registry *flow.Registry
	store    *store.Store
	source   *store.Source
	relay    *Relay

	stop    context.CancelFunc
	running sync.WaitGroup
	before  int // descriptors
	closed  bool
}

func newWorld(t testing.TB, o Options) *world {
	t.Helper()
	w := &world{t: t, registry: flow.NewRegistry(flow.Options{}), before: descriptors(t)}
	w.store = store.New(store.Options{Registry: w.registry})
	w.source = w.store.Source("test")
	o.Store, o.Registry, o.Picker = w.store, w.registry, pick.New(pick.Options{})
	var err error
	if w.relay, err = New(o); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.running.Go(func() { _ = w.store.Run(ctx) })
	t.Cleanup(w.close)
	return w
}

// close ends the relay and checks that nothing is left.
func (w *world) close() {
	w.t.Helper()
	if w.closed {
		return
	}
	w.closed = true
	if err := w.relay.Close(); err != nil {
		w.t.Errorf("close the relay: %v", err)
	}
	w.stop()
	w.running.Wait()
	w.endReleased()
	if n := w.registry.Len(); n != 0 {
		w.t.Errorf("%d records are left", n)
	}
	if n := w.relay.Flows(); n != 0 {
		w.t.Errorf("the loops count %d flows", n)
	}
	if n, udp := w.relay.budget.used.Load(), w.relay.budget.udp.Load(); n != 0 || udp != 0 {
		w.t.Errorf("%d descriptors are still taken from the budget, %d for UDP", n, udp)
	}
	for s := range w.store.Snapshot().Services() {
		for _, b := range s.Pool {
			if n := b.Load.Flows(); n != 0 {
				w.t.Errorf("%s: %s counts %d flows", s.Name, b.Address, n)
			}
		}
		for _, table := range []*limitTable{&w.relay.limits, &w.relay.udpLimits} {
			if l := table.of(s.Name); !l.idle() || len(l.perClient) != 0 || l.sessions.Load() != 0 {
				w.t.Errorf("%s: the limits count %d flows, %d clients, %d sessions", s.Name, l.open, len(l.perClient), l.sessions.Load())
			}
		}
	}
}

// endReleased ends the UDP sessions that the relay has left to their carriers.
func (w *world) endReleased() {
	for _, rec := range w.registry.Records() {
		if rec.Key().Proto() == flow.UDP && rec.View().State == flow.Offloaded {
			rec.End(flow.ByBaton, flow.ReasonShutdown)
		}
	}
}

// leaks checks that the process has no more descriptors than before the world;
// the test's own must be closed.
func (w *world) leaks() {
	w.t.Helper()
	w.close()
	testnet.Eventually(w.t, patience, "no descriptor is left", func() error {
		if n := descriptors(w.t) - w.before; n > 0 {
			return fmt.Errorf("%d more than before", n)
		}
		return nil
	})
}

// serve makes these services all that there are, and waits until they serve.
func (w *world) serve(services ...lb.Service) {
	w.t.Helper()
	if err := w.source.Replace(services); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.store.Programmed(ctx, w.store.Snapshot().Revision); err != nil {
		w.t.Fatal(err)
	}
	if f := w.store.Failures(); len(f) > 0 {
		w.t.Fatalf("not programmed: %v", f)
	}
}

// service is one at a VIP with these backends.
func service(name string, vip netip.AddrPort, backends ...netip.AddrPort) lb.Service {
	s := lb.Default(name)
	s.Frontends = []lb.Frontend{{FrontendKey: lb.FrontendKey{Proto: flow.TCP, Address: vip}}}
	for _, b := range backends {
		s.Backends = append(s.Backends, lb.Backend{Address: b, Weight: 1})
	}
	return s
}

// vip is an address of the loopback device for frontends.
var vip = netip.MustParseAddrPort("127.0.1.1:80")

// backend serves on the loopback device until the test ends.
func backend(t testing.TB, handler func(net.Conn)) (addr netip.AddrPort, s *testnet.Server) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.2.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = testnet.ServeListener(ln, handler)
	t.Cleanup(s.Close)
	return ln.Addr().(*net.TCPAddr).AddrPort(), s
}

// nobody is an address at which nothing listens.
func nobody(t testing.TB) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.2.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// dial connects to a VIP. The connection is closed with the test.
func dial(t testing.TB, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", to.String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// wantReset connects to a VIP and wants a reset, which connect(2) may report.
func wantReset(t testing.TB, to netip.AddrPort) {
	t.Helper()
	c, err := net.DialTimeout("tcp", to.String(), patience)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err = io.ReadAll(c)
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection to %s ended with %v, want a reset", to, err)
	}
}

// ended waits until the flow of a client has ended.
func (w *world) ended(client net.Addr) (v flow.View) {
	w.t.Helper()
	testnet.Eventually(w.t, patience, "the flow has ended", func() error {
		for _, v = range w.registry.LastEnded() {
			if v.Client.String() == client.String() {
				return nil
			}
		}
		return fmt.Errorf("%d flows are live", w.registry.Len())
	})
	return v
}

// wantEnded waits until a flow has ended in some way.
func (w *world) wantEnded(by flow.By, why flow.Reason) (v flow.View) {
	w.t.Helper()
	testnet.Eventually(w.t, patience, fmt.Sprintf("a flow is ended by %s (%s)", by, why), func() error {
		all := w.registry.LastEnded()
		for _, v = range all {
			if v.EndedBy == by && v.Reason == why {
				return nil
			}
		}
		return fmt.Errorf("ended flows: %+v", all)
	})
	return v
}

// record waits for the only live flow in a state.
func (w *world) record(s flow.State) (rec *flow.Record) {
	w.t.Helper()
	testnet.Eventually(w.t, patience, "a flow is "+string(s), func() error {
		all := w.registry.Records()
		if len(all) != 1 {
			return fmt.Errorf("%d flows", len(all))
		}
		if rec = all[0]; rec.View().State != s {
			return fmt.Errorf("it is %s", rec.View().State)
		}
		return nil
	})
	return rec
}

func wantEnd(t testing.TB, v flow.View, by flow.By, why flow.Reason) {
	t.Helper()
	if v.EndedBy != by || v.Reason != why {
		t.Errorf("ended by %s (%s), want by %s (%s): %+v", v.EndedBy, v.Reason, by, why, v)
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
