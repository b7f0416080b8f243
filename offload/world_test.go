package offload_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/offload"
)

const patience = 10 * time.Second

var vips = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd96::10")}

const (
	vipPort     = 80
	backendPort = 8080
)

// world is a client, a balancer with an Offloader and a plain relay, and a backend.
type world struct {
	t        testing.TB
	star     *testnet.Star
	dir      string // of state
	registry *flow.Registry
	o        *offload.Offloader
	stop     func()

	listeners []net.Listener

	mu      sync.Mutex // guards what follows
	service lb.Service
	pairs   []*pair
	results map[flow.HandoffResult]int
	stood   []time.Duration
	refused map[flow.NotOffloaded]int // by Prepare
	running sync.WaitGroup
}

// newWorld makes a world whose kernel is made inside of the balancer.
func newWorld(t testing.TB, kernel func(*testnet.Star) offload.Kernel, change ...func(*offload.Options)) *world {
	t.Helper()
	w := &world{
		t: t, star: testnet.NewStar(t, 1), dir: t.TempDir(), service: lb.Default("web"),
		results: make(map[flow.HandoffResult]int), refused: make(map[flow.NotOffloaded]int),
	}
	w.service.Offload.Mode = lb.OffloadAlways
	for _, vip := range vips {
		w.star.Balancer.AddAddr("lo", netip.PrefixFrom(vip, vip.BitLen()))
	}
	w.open(kernel(w.star), change...)
	t.Cleanup(func() {
		for _, ln := range w.listeners {
			ln.Close()
		}
		w.endPairs()
		w.running.Wait()
		w.stop()
	})
	for _, vip := range vips {
		w.listen(netip.AddrPortFrom(vip, vipPort))
	}
	return w
}

// change has the service be another for connections from now on.
func (w *world) change(f func(*lb.Service)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.service)
}

func (w *world) offload(o lb.Offload) { w.change(func(s *lb.Service) { s.Offload = o }) }

// open starts an Offloader, as a process does.
func (w *world) open(k offload.Kernel, change ...func(*offload.Options)) {
	w.t.Helper()
	w.registry = flow.NewRegistry(flow.Options{})
	o := offload.Options{
		Kernel: k, Registry: w.registry, StateDir: w.dir, Log: slog.New(slog.NewTextHandler(testWriter{w.t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Observe: func(d time.Duration) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.stood = append(w.stood, d)
		},
		Result: func(_ flow.PathName, r flow.HandoffResult) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.results[r]++
		},
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	w.star.Balancer.Do(func() { w.o, err = offload.New(o) })
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	offloader := w.o
	go func() {
		defer close(ran)
		_ = offloader.Run(ctx)
	}()
	w.stop = sync.OnceFunc(func() {
		cancel()
		<-ran
		if err := offloader.Close(); err != nil {
			w.t.Error(err)
		}
	})
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

// listen relays what is connected to addr.
func (w *world) listen(addr netip.AddrPort) {
	w.t.Helper()
	ln, err := w.star.Balancer.Listen("tcp", addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.running.Go(func() { w.relay(c.(*net.TCPConn)) })
		}
	})
	w.listeners = append(w.listeners, ln)
}

// relay dials the backend and moves bytes until the flow ends or is handed off.
func (w *world) relay(c *net.TCPConn) {
	front := ownFD(c)
	client, frontend := c.RemoteAddr().(*net.TCPAddr).AddrPort(), c.LocalAddr().(*net.TCPAddr).AddrPort()
	_ = c.Close()
	client, frontend = netip.AddrPortFrom(client.Addr().Unmap(), client.Port()), netip.AddrPortFrom(frontend.Addr().Unmap(), frontend.Port())
	p := &pair{w: w, fds: [2]int{front, -1}, done: make(chan struct{})}
	p.wake, _ = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	w.mu.Lock() // who finds the record finds the pair
	p.rec = w.registry.Open(flow.Spec{Proto: flow.TCP, Service: "web", Frontend: frontend, Client: client})
	p.rec.Attach(flow.PathUserspace, p)
	w.pairs = append(w.pairs, p)
	w.mu.Unlock()
	defer close(p.done)
	defer unix.Close(p.wake)
	if err := p.dial(w.backend(frontend.Addr())); err != nil {
		w.t.Logf("dial: %v", err)
		p.end(flow.ByBackend, flow.ReasonDialFailed, true)
		p.leave()
		return
	}
	p.run()
}

func (w *world) backend(like netip.Addr) netip.AddrPort {
	b := w.star.Backends[0]
	if like.Is4() {
		return netip.AddrPortFrom(b.IP4, backendPort)
	}
	return netip.AddrPortFrom(b.IP6, backendPort)
}

func (w *world) endPairs() {
	w.mu.Lock()
	pairs := w.pairs
	w.mu.Unlock()
	for _, p := range pairs {
		p.End(flow.ByBaton, flow.ReasonShutdown)
	}
}

// connect makes a connection to the VIP of a family.
func (w *world) connect(vip netip.Addr) *net.TCPConn {
	w.t.Helper()
	c, err := w.star.Client.Dial("tcp", netip.AddrPortFrom(vip, vipPort))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return c.(*net.TCPConn)
}

// record waits for the record of a client's connection.
func (w *world) record(c net.Conn) *flow.Record {
	w.t.Helper()
	from := c.LocalAddr().(*net.TCPAddr).AddrPort()
	var rec *flow.Record
	testnet.Eventually(w.t, patience, "the flow is listed", func() error {
		for _, r := range w.registry.Records() {
			if r.Key().Client() == from {
				rec = r
				return nil
			}
		}
		return fmt.Errorf("none from %s", from)
	})
	return rec
}

// onPath waits until a flow is where it should be.
func (w *world) onPath(c net.Conn, want flow.PathName) *flow.Record {
	w.t.Helper()
	rec := w.record(c)
	testnet.Eventually(w.t, patience, "the flow is on path "+string(want), func() error {
		if v := rec.View(); v.Path != want {
			return fmt.Errorf("it is on %s: %s (%v)", v.Path, v.NotOffloaded, w.resultsSoFar())
		}
		return nil
	})
	return rec
}

// stays waits for a reason why a flow stays in userspace.
func (w *world) stays(c net.Conn, want flow.NotOffloaded) {
	w.t.Helper()
	rec := w.record(c)
	testnet.Eventually(w.t, patience, "the flow stays in userspace", func() error {
		if v := rec.View(); v.NotOffloaded != want || v.Path != flow.PathUserspace {
			return fmt.Errorf("path %s, %q, want %q (%v)", v.Path, v.NotOffloaded, want, w.resultsSoFar())
		}
		return nil
	})
}

// ended waits for the end of a flow.
func (w *world) ended(id flow.ID, by flow.By, why flow.Reason) flow.View {
	w.t.Helper()
	var view flow.View
	testnet.Eventually(w.t, patience, "the flow has ended", func() error {
		for _, v := range w.registry.LastEnded() {
			if v.ID == id {
				view = v
				return nil
			}
		}
		return fmt.Errorf("flow %s has not", id)
	})
	if view.EndedBy != by || view.Reason != why {
		w.t.Errorf("ended by %s, %s; want %s, %s", view.EndedBy, view.Reason, by, why)
	}
	return view
}

func (w *world) resultsSoFar() map[flow.HandoffResult]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[flow.HandoffResult]int)
	for r, n := range w.results {
		all[r] = n
	}
	return all
}

func (w *world) request(p *pair, backend netip.AddrPort) handoff.Request {
	k := p.rec.Key()
	w.mu.Lock()
	defer w.mu.Unlock()
	return handoff.Request{
		Record: p.rec, Client: k.Client(), Frontend: k.Frontend(), Backend: backend, ClientFD: p.fds[0],
		Policy: w.service.Offload, Timeouts: w.service.Timeouts,
	}
}

// ownFD is a descriptor of the caller's of the same socket.
func ownFD(c *net.TCPConn) int {
	fd := -1
	raw, err := c.SyscallConn()
	if err == nil {
		_ = raw.Control(func(f uintptr) { fd, _ = unix.FcntlInt(f, unix.F_DUPFD_CLOEXEC, 0) })
	}
	return fd
}

func deadline() time.Time { return time.Now().Add(patience) }

func addrPort(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

func udpAddr(a net.Addr) netip.AddrPort {
	ap := a.(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// idleEnough is long enough to do something with a flow before it ends.
const idleEnough = 3 * time.Second

func idleAfter(d time.Duration) func(*lb.Service) {
	return func(s *lb.Service) { s.Timeouts.Idle = d }
}
