package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// hold keeps every loop busy until release is called.
func (w *world) hold() (release func()) {
	gate := make(chan struct{})
	var held sync.WaitGroup
	for _, worker := range w.relay.workers {
		held.Add(1)
		worker.loop.Post(func() { held.Done(); <-gate })
	}
	held.Wait()
	return sync.OnceFunc(func() { close(gate) })
}

// Connections that wait to be accepted when the relay stops listening are served
// to their end, whichever loop they go to.
func TestStopServesWhatWaits(t *testing.T) {
	w := newWorld(t, Options{Loops: 3})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, addr))
	release := w.hold()
	defer release()
	var waiting []*net.TCPConn
	for range 100 {
		waiting = append(waiting, dial(t, vip))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	left := make(chan int, 1)
	go func() { left <- w.relay.Drain(ctx) }()
	release()
	for i, c := range waiting {
		if err := testnet.Ask(c, fmt.Sprint(i)); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if _, err := net.Dial("tcp", vip.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v, want a refusal", err)
	}
	for _, c := range waiting {
		c.Close()
	}
	if n := receive(t, left); n != 0 {
		t.Errorf("%d flows are left", n)
	}
	w.close()
}

// Clients that connect while listeners come and go, backends change and the
// relay stops are served or reset, and everything is counted down to zero.
func TestChurn(t *testing.T) {
	a, serverA := backend(t, testnet.Echo)
	b, serverB := backend(t, testnet.Echo)
	w := newWorld(t, Options{Loops: 3})
	both, none := service("web", vip, a, b), service("web", vip)
	one := service("web", vip, a)
	one.OnBackendRemoved = lb.Reset
	w.serve(both)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 6 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := net.Dial("tcp", vip.String()); err == nil {
					_ = testnet.Ask(c, "x")
					c.Close()
				}
			}
		})
	}
	for range 15 {
		for _, s := range [][]lb.Service{{none}, {both}, {one}, nil, {both}} {
			w.serve(s...)
		}
	}
	if err := w.relay.Close(); err != nil {
		t.Error(err)
	}
	close(stop)
	clients.Wait()
	serverA.Close()
	serverB.Close()
	w.leaks()
}

// A frontend that moves from one service to another keeps its socket; one that
// nobody has any more, or that has no usable backend, refuses.
func TestListenersFollowTheStore(t *testing.T) {
	w := newWorld(t, Options{})
	a, _ := backend(t, testnet.Named("a"))
	b, _ := backend(t, testnet.Named("b"))
	socket := func() *listener {
		w.relay.mu.Lock()
		defer w.relay.mu.Unlock()
		return w.relay.listeners.open[lb.FrontendKey{Proto: flow.TCP, Address: vip}]
	}
	ask := func(want string) {
		t.Helper()
		c, err := net.Dial("tcp", vip.String())
		if err != nil {
			if want != "" {
				t.Errorf("want %q: %v", want, err)
			} else if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("want a refusal, got %v", err)
			}
			return
		}
		defer c.Close()
		if name, err := testnet.ReadName(c); name != want {
			t.Errorf("got %q, %v, want %q", name, err, want)
		}
	}
	ask("")
	w.serve(service("one", vip, a))
	ask("a")
	first := socket()
	w.serve(service("two", vip, b))
	ask("b")
	if socket() != first {
		t.Error("the socket was made anew")
	}
	down := service("two", vip, b)
	down.Backends[0].State = lb.StateDown
	w.serve(down)
	ask("")
	w.serve(service("two", vip, b))
	ask("b")
	w.serve()
	ask("")
	if n := w.relay.budget.used.Load(); n != 0 {
		t.Errorf("%d descriptors are taken", n)
	}
}

// A frontend at the wildcard address takes connections to every address, and the
// record says which it was.
func TestWildcardFrontend(t *testing.T) {
	w := newWorld(t, Options{})
	a, _ := backend(t, testnet.Named("here"))
	w.serve(service("any", netip.MustParseAddrPort("0.0.0.0:8088"), a))
	for _, at := range []string{"127.0.1.8:8088", "127.0.1.7:8088"} {
		c := dial(t, netip.MustParseAddrPort(at))
		if name, err := testnet.ReadName(c); name != "here" {
			t.Errorf("%s: got %q, %v", at, name, err)
		}
		c.Close()
		if v := w.ended(c.LocalAddr()); v.Frontend.String() != at {
			t.Errorf("%s: the record has %s", at, v.Frontend)
		}
	}
}

// Who may use a frontend.
func TestPermitted(t *testing.T) {
	prefixes := func(texts ...string) (all []netip.Prefix) {
		for _, s := range texts {
			all = append(all, netip.MustParsePrefix(s))
		}
		return all
	}
	client := netip.MustParseAddr("192.0.2.7")
	for name, tt := range map[string]struct {
		allow, deny, sources []netip.Prefix
		want                 bool
	}{
		"all":                     {nil, nil, nil, true},
		"allowed":                 {prefixes("198.51.100.0/24", "192.0.2.0/24"), nil, nil, true},
		"not allowed":             {prefixes("198.51.100.0/24"), nil, nil, false},
		"the other family":        {prefixes("::/0"), nil, nil, false},
		"denied":                  {nil, prefixes("192.0.2.0/28"), nil, false},
		"deny wins":               {prefixes("192.0.2.7/32"), prefixes("192.0.2.0/24"), nil, false},
		"not denied":              {nil, prefixes("192.0.2.8/32"), nil, true},
		"frontend's":              {nil, nil, prefixes("192.0.2.0/24"), true},
		"frontend's, not":         {nil, nil, prefixes("198.51.100.0/24"), false},
		"frontend's and denied":   {nil, prefixes("192.0.2.7/32"), prefixes("192.0.2.0/24"), false},
		"frontend's, not allowed": {prefixes("198.51.100.0/24"), nil, prefixes("192.0.2.0/24"), false},
	} {
		s := lb.Default("web")
		s.Allow, s.Deny = tt.allow, tt.deny
		fe := &store.Frontend{Frontend: &lb.Frontend{AllowSources: tt.sources}, Service: &store.Service{Service: s}}
		if got := permitted(fe, client); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// A client that is denied is reset, in a record that says so.
func TestDenied(t *testing.T) {
	w := newWorld(t, Options{})
	addr, _ := backend(t, testnet.Echo)
	s := service("web", vip, addr)
	s.Deny = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	w.serve(s)
	wantReset(t, vip)
	w.wantEnded(flow.ByBaton, flow.ReasonDenied)
	if n := w.registry.DropCounts()[flow.DropDenied]; n != 1 {
		t.Errorf("%d drops", n)
	}
}

// Flows go to the loop that has the fewest, and stay where they are accepted
// while the loads are about even.
func TestQuietest(t *testing.T) {
	w := newWorld(t, Options{Loops: 3})
	workers := w.relay.workers
	for _, tt := range []struct{ loads, want []int64 }{
		{[]int64{0, 0, 0}, []int64{0, 1, 2}},
		{[]int64{8, 0, 0}, []int64{0, 1, 2}},
		{[]int64{9, 0, 0}, []int64{1, 1, 2}},
		{[]int64{1000, 900, 950}, []int64{0, 1, 2}},
		{[]int64{2000, 900, 950}, []int64{1, 1, 2}},
	} {
		for i, n := range tt.loads {
			workers[i].loop.Load().Store(n)
		}
		for i, want := range tt.want {
			if got := slices.Index(workers, workers[i].quietest()); got != int(want) {
				t.Errorf("loads %v: worker %d gives to %d, want %d", tt.loads, i, got, want)
			}
		}
	}
	for _, worker := range workers {
		worker.loop.Load().Store(0)
	}
}
