package relay

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// remotes is a backend that tells where its clients come from, and echoes.
func remotes(t testing.TB) (netip.AddrPort, <-chan netip.AddrPort) {
	t.Helper()
	c := make(chan netip.AddrPort, 100)
	addr, _ := backend(t, func(conn net.Conn) {
		c <- conn.RemoteAddr().(*net.TCPAddr).AddrPort()
		testnet.Echo(conn)
	})
	return addr, c
}

// wantReleased waits until a lease has been released once, for a reason.
func wantReleased(t testing.TB, l *fakeLease, why flow.Reason) {
	t.Helper()
	testnet.Eventually(t, patience, "the lease is released", func() error {
		if _, released := l.fate(); len(released) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	if _, released := l.fate(); !slices.Equal(released, []flow.Reason{why}) {
		t.Errorf("released for %v, want %v once", released, why)
	}
}

// The offloader is asked for every backend before it is dialled, its local
// address is the one used, and it is offered the flow once that is established.
func TestLease(t *testing.T) {
	local := netip.MustParseAddrPort("127.0.3.1:50001")
	o := newFakeOffloader(local)
	w := newWorld(t, Options{Offloader: o})
	live, from := remotes(t)
	dead := nobody(t)
	s := service("web", vip, dead, live)
	s.Backends[1].Priority = 1 // the dead one first
	s.Offload.AfterBytes = 1234
	w.serve(s)
	c := dial(t, vip)
	p := receive(t, o.offers)
	if v := p.Record().View(); v.State != flow.Established || v.Backend != live || v.NotOffloaded != "" {
		t.Errorf("offered: %+v", v)
	}
	if got := receive(t, from); got != local {
		t.Errorf("connected from %s, want %s", got, local)
	}
	leases := o.all()
	if len(leases) != 2 || leases[0].backend != dead || leases[1].backend != live {
		t.Fatalf("%d leases", len(leases))
	}
	want := flow.NewKey(flow.TCP, c.LocalAddr().(*net.TCPAddr).AddrPort(), vip)
	for _, l := range leases {
		if l.key != want || l.policy != s.Offload {
			t.Errorf("asked for %v, %+v", l.key, l.policy)
		}
	}
	wantReleased(t, leases[0], flow.ReasonDialFailed)
	if offered, released := leases[1].fate(); offered != 1 || len(released) != 0 {
		t.Errorf("offered %d times, released %v", offered, released)
	}
	c.Close()
	w.ended(c.LocalAddr())
	wantReleased(t, leases[1], flow.ReasonClosed)
	if offered, _ := leases[0].fate(); offered != 0 {
		t.Error("a flow that was not established was offered")
	}
	if _, ok := p.Stop(); ok {
		t.Error("a flow that has ended could be stopped")
	}
}

// A local address that is in use, or in use towards this backend, means the
// next one of the lease; when there is none left, the flow ends for want of
// ports and the backend is not blamed.
func TestLeaseNext(t *testing.T) {
	inUse := listenAt(t, "127.0.3.1:0") // EADDRINUSE
	connected := netip.MustParseAddrPort("127.0.3.1:50003")
	free := netip.MustParseAddrPort("127.0.3.1:50004")
	o := newFakeOffloader(inUse, connected, free)
	w := newWorld(t, Options{Offloader: o})
	addr, from := remotes(t)
	fd, err := dialTCP(DialParams{Local: connected}, addr) // EADDRNOTAVAIL
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	receive(t, from)
	w.serve(service("web", vip, addr))
	dial(t, vip)
	if got := receive(t, from); got != free {
		t.Errorf("connected from %s, want %s", got, free)
	}
	wantReset(t, vip)
	w.wantEnded(flow.ByBaton, flow.ReasonLocalResources)
	wantReleased(t, o.all()[1], flow.ReasonDialFailed)
	if n := w.registry.Acquire("web", addr).Failures(); n != 0 {
		t.Errorf("the backend has %d failures", n)
	}
}

// A flow that ends while its backend is being dialled gives its lease back.
func TestLeaseOfADialThatIsGivenUp(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o})
	s := service("web", vip, fullBacklog(t))
	s.Timeouts.Connect = time.Hour
	w.serve(s)
	dial(t, vip)
	rec := w.record(flow.Dialing)
	testnet.Eventually(t, patience, "the dial is under way", func() error {
		if len(o.all()) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	rec.End(flow.ByBaton, flow.ReasonAdminReset)
	wantReleased(t, o.all()[0], flow.ReasonAdminReset)
}

// Why there is no lease stands in the record.
func TestNoLease(t *testing.T) {
	addr, _ := backend(t, testnet.Echo)
	for name, tt := range map[string]struct {
		offloader Offloader
		policy    lb.Offload
		want      flow.NotOffloaded
	}{
		"none":      {nil, lb.Offload{Mode: lb.OffloadAuto}, flow.NotOffloadedUnavailable},
		"never":     {nil, lb.Offload{Mode: lb.OffloadNever}, flow.NotOffloadedNever},
		"flowtable": {nil, lb.Offload{Mode: lb.OffloadAuto, Path: lb.OffloadPathFlowtable}, flow.NotOffloadedTerminated},
		"refused":   {&fakeOffloader{refuse: flow.NotOffloadedNever}, lb.Offload{}, flow.NotOffloadedNever},
	} {
		if tt.offloader == nil {
			tt.offloader = NoOffload
		}
		if _, why := tt.offloader.Prepare(flow.Key{}, addr, tt.policy); why != tt.want {
			t.Errorf("%s: %q, want %q", name, why, tt.want)
		}
	}
	w := newWorld(t, Options{Offloader: &fakeOffloader{refuse: flow.NotOffloadedNever}})
	w.serve(service("web", vip, addr))
	dial(t, vip)
	if v := w.record(flow.Established).View(); v.NotOffloaded != flow.NotOffloadedNever {
		t.Errorf("%+v", v)
	}
}

// Stop hands out exactly what is in flight and Resume takes it back, again and
// again during a transfer both ways; sometimes whoever has stopped it delivers
// some of it, or carries bytes from socket to socket itself.
func TestStopAndResume(t *testing.T) {
	const size, stops = 12 << 20, 100
	sysctl(t, "tcp_wmem", "4096 16384 65536") // so that much of it is in flight in the relay
	sysctl(t, "tcp_rmem", "4096 16384 65536")
	for _, descriptors := range []int{0, 100} { // many pipes, or one
		o := newFakeOffloader()
		w := newWorld(t, Options{Offloader: o, Loops: 1, Descriptors: descriptors})
		turns := make(chan struct{}) // to read, so that the transfer lasts until the last stop
		got := make(chan testnet.Sum, 2)
		addr, _ := backend(t, func(c net.Conn) {
			sent := make(chan struct{})
			go func() {
				_, _ = testnet.SendBulk(c, 2, size)
				_ = c.(*net.TCPConn).CloseWrite()
				close(sent)
			}()
			sum, _ := testnet.ReceiveBulk(paced{c, turns})
			got <- sum
			<-sent
		})
		w.serve(service("web", vip, addr))
		c := dial(t, vip)
		p := receive(t, o.offers)
		stopped := make(chan int, 1)
		go func() { stopped <- stopAgainAndAgain(t, p, stops, turns) }()
		go func() {
			_, _ = testnet.SendBulk(c, 1, size)
			_ = c.CloseWrite()
		}()
		sum, err := testnet.ReceiveBulk(paced{c, turns})
		if err != nil || sum != testnet.StreamSum(2, size) {
			t.Errorf("the client got %v, %v", sum, err)
		}
		if sum := receive(t, got); sum != testnet.StreamSum(1, size) {
			t.Errorf("the backend got %v", sum)
		}
		if n := receive(t, stopped); n != stops {
			t.Errorf("it was stopped %d times, want %d", n, stops)
		}
		wantEnd(t, w.ended(c.LocalAddr()), w.registry.LastEnded()[0].EndedBy, flow.ReasonClosed)
		w.close()
	}
}

// paced waits for its turn before each read.
type paced struct {
	io.Reader
	turns <-chan struct{}
}

func (p paced) Read(b []byte) (int, error) {
	<-p.turns
	return p.Reader.Read(b)
}

// stopAgainAndAgain stops and resumes a flow, and lets some reads happen in
// between. There is no end to the turns after the last stop.
func stopAgainAndAgain(t testing.TB, p Pair, stops int, turns chan struct{}) (n int) {
	defer close(turns)
	rng, held := rand.New(rand.NewPCG(3, 4)), 0
	for range stops {
		for range 2 { // of some hundreds
			turns <- struct{}{}
		}
		s, ok := p.Stop()
		if !ok {
			return n
		}
		n++
		held += len(s.ToBackend) + len(s.ToClient)
		if _, again := p.Stop(); again {
			t.Error("a stopped flow was stopped")
		}
		toBackend := deliver(t, rng, s.BackendFD, s.ToBackend)
		toClient := deliver(t, rng, s.ClientFD, s.ToClient)
		if len(toBackend) == 0 && !s.ClientEOF {
			toBackend = carryOn(t, s.ClientFD, s.BackendFD)
		}
		p.Resume(toBackend, toClient)
	}
	if held < stops*1000 {
		t.Errorf("only %d bytes were in flight at %d stops", held, n)
	}
	return n
}

// deliver writes some of what was in flight and returns the rest.
func deliver(t testing.TB, rng *rand.Rand, fd int, b []byte) []byte {
	if len(b) == 0 || rng.IntN(2) == 0 {
		return b
	}
	n, err := unix.Write(fd, b[:1+rng.IntN(len(b))])
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		t.Errorf("deliver: %v", err)
	}
	return b[max(n, 0):]
}

// carryOn moves a piece of one direction and returns what did not fit.
func carryOn(t testing.TB, from, to int) []byte {
	buf := make([]byte, 10_000)
	n, err := unix.Read(from, buf)
	if errors.Is(err, unix.EAGAIN) || n == 0 { // the end is the relay's to read again
		return nil
	}
	if err != nil {
		t.Errorf("carry on: %v", err)
		return nil
	}
	m, err := unix.Write(to, buf[:n])
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		t.Errorf("carry on: %v", err)
	}
	return buf[max(m, 0):n]
}

// After HandedOff the relay has forgotten both sockets, without a FIN or RST:
// somebody else goes on with them. The record lives on, its counters continue,
// and its end is the new path's business.
func TestHandedOff(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, addr))
	c := dial(t, vip)
	if err := testnet.Ask(c, "in userspace"); err != nil {
		t.Fatal(err)
	}
	p := receive(t, o.offers)
	s, ok := p.Stop()
	if !ok || len(s.ToBackend)+len(s.ToClient) != 0 {
		t.Fatalf("stop: %+v, %v", s, ok)
	}
	path := newFakePath()
	p.HandedOff(flow.PathBPF, path)
	p.HandedOff(flow.PathBPF, path) // and all of these do nothing any more
	p.Resume([]byte("x"), []byte("y"))
	if _, ok := p.Stop(); ok {
		t.Error("a flow that was handed over was stopped")
	}
	if n := w.relay.Flows(); n != 0 {
		t.Errorf("the relay still has %d flows", n)
	}
	if n := w.relay.budget.used.Load(); n != 1 {
		t.Errorf("%d descriptors are still the relay's, want that of its listener", n)
	}
	asked := make(chan error, 1)
	go func() { asked <- testnet.Ask(c, "in the kernel") }()
	path.carry(t, s.ClientFD, s.BackendFD, &path.counters.BytesToBackend)
	path.carry(t, s.BackendFD, s.ClientFD, &path.counters.BytesToClient)
	if err := receive(t, asked); err != nil {
		t.Error(err)
	}
	before, after := uint64(len("in userspace\n")), uint64(len("in the kernel\n"))
	v := p.Record().View()
	if v.Path != flow.PathBPF || v.BytesToBackend != before+after || v.BytesToClient != before+after {
		t.Errorf("the record: %+v", v)
	}
	if n := w.registry.Acquire("web", addr).Flows(); n != 1 {
		t.Errorf("the backend has %d flows, want 1", n)
	}
	p.Record().End(flow.ByBaton, flow.ReasonAdminReset)
	end := receive(t, path.ends)
	if end != (endCall{flow.ByBaton, flow.ReasonAdminReset}) {
		t.Errorf("asked to end: %+v", end)
	}
	closeAll(s.ClientFD, s.BackendFD)
	p.Record().Finish(end.by, end.why)
	wantEnd(t, w.ended(c.LocalAddr()), flow.ByBaton, flow.ReasonAdminReset)
	if _, released := o.all()[0].fate(); len(released) != 0 {
		t.Errorf("the lease was released for %v", released)
	}
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// An end that comes while a flow is stopped waits for what becomes of it.
func TestEndWhileStopped(t *testing.T) {
	for _, handOff := range []bool{false, true} {
		o := newFakeOffloader()
		w := newWorld(t, Options{Offloader: o})
		addr, _ := backend(t, testnet.Echo)
		w.serve(service("web", vip, addr))
		c := dial(t, vip)
		p := receive(t, o.offers)
		s, ok := p.Stop()
		if !ok {
			t.Fatal("it could not be stopped")
		}
		p.Record().End(flow.ByBaton, flow.ReasonAdminReset)
		w.barrier()
		if n := w.registry.Len(); n != 1 {
			t.Fatalf("%d flows while it is stopped", n)
		}
		if handOff {
			path := newFakePath()
			p.HandedOff(flow.PathBPF, path)
			if end := receive(t, path.ends); end.why != flow.ReasonAdminReset {
				t.Errorf("asked to end: %+v", end)
			}
			closeAll(s.ClientFD, s.BackendFD)
			p.Record().Finish(flow.ByBaton, flow.ReasonAdminReset)
		} else {
			p.Resume(s.ToBackend, s.ToClient)
			wantReleased(t, o.all()[0], flow.ReasonAdminReset)
		}
		if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client's end: %v", err)
		}
		wantEnd(t, w.ended(c.LocalAddr()), flow.ByBaton, flow.ReasonAdminReset)
		w.close()
	}
}

// barrier waits until every loop has done what it was told before.
func (w *world) barrier() { w.relay.barrier() }

// Somebody who looked up the path of a flow just before it was handed over still
// ends the flow.
func TestEndMeetsHandover(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, addr))
	dial(t, vip)
	p := receive(t, o.offers)
	s, _ := p.Stop()
	path := newFakePath()
	p.HandedOff(flow.PathBPF, path)
	p.(pair).f.End(flow.ByBaton, flow.ReasonAdminReset) // what the record would have called
	if end := receive(t, path.ends); end.why != flow.ReasonAdminReset {
		t.Errorf("asked to end: %+v", end)
	}
	closeAll(s.ClientFD, s.BackendFD)
	p.Record().Finish(flow.ByBaton, flow.ReasonAdminReset)
}

// A client that resets while its flow is stopped: that is found out afterwards,
// and what it sent before still arrives.
func TestResetWhileStopped(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o})
	got := make(chan string, 1)
	addr, _ := backend(t, func(c net.Conn) {
		b, err := io.ReadAll(c)
		got <- string(b) + " " + map[bool]string{true: "reset"}[errors.Is(err, syscall.ECONNRESET)]
	})
	w.serve(service("web", vip, addr))
	c := dial(t, vip)
	p := receive(t, o.offers)
	s, _ := p.Stop()
	_, _ = io.WriteString(c, "last words")
	control(t, c, func(fd int) error { return waitAcknowledged(fd) })
	testnet.Reset(c)
	p.Resume(s.ToBackend, s.ToClient)
	if s := receive(t, got); s != "last words reset" {
		t.Errorf("the backend got %q", s)
	}
	wantEnd(t, w.ended(c.LocalAddr()), flow.ByClient, flow.ReasonReset)
	wantReleased(t, o.all()[0], flow.ReasonReset)
}

func waitAcknowledged(fd int) error {
	for end := time.Now().Add(patience); unacknowledged(fd) > 0; {
		if time.Now().After(end) {
			return errors.New("bytes are not acknowledged")
		}
		time.Sleep(100 * time.Microsecond)
	}
	return nil
}

// A relay that closes while a flow is stopped leaves it to whoever has stopped
// it: letting it go ends it, handing it off is still possible.
func TestCloseWhileStopped(t *testing.T) {
	for _, handOff := range []bool{false, true} {
		o := newFakeOffloader()
		w := newWorld(t, Options{Offloader: o})
		addr, _ := backend(t, testnet.Echo)
		w.serve(service("web", vip, addr))
		c := dial(t, vip)
		p := receive(t, o.offers)
		s, _ := p.Stop()
		if err := w.relay.Close(); err != nil {
			t.Fatal(err)
		}
		if handOff {
			path := newFakePath()
			p.HandedOff(flow.PathBPF, path)
			if end := receive(t, path.ends); end.why != flow.ReasonShutdown {
				t.Errorf("asked to end: %+v", end)
			}
			closeAll(s.ClientFD, s.BackendFD)
			p.Record().Finish(flow.ByBaton, flow.ReasonShutdown)
		} else {
			p.Resume(s.ToBackend, s.ToClient)
		}
		if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client's end: %v", err)
		}
		wantEnd(t, w.ended(c.LocalAddr()), flow.ByBaton, flow.ReasonShutdown)
		w.close()
	}
}

// Whatever happens to a flow at once, it ends once, and its lease is released
// once.
func TestOffloadRaces(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o, Loops: 2})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, addr))
	for i := range 60 {
		c := dial(t, vip)
		p := receive(t, o.offers)
		done := make(chan struct{}, 3)
		go func() {
			for range 5 {
				if s, ok := p.Stop(); ok {
					p.Resume(s.ToBackend, s.ToClient)
				}
			}
			done <- struct{}{}
		}()
		go func() {
			_ = testnet.Ask(c, "x")
			p.Record().End(flow.ByBaton, flow.ReasonAdminReset)
			done <- struct{}{}
		}()
		go func() {
			if i%2 == 0 {
				testnet.Reset(c)
			}
			done <- struct{}{}
		}()
		for range 3 {
			receive(t, done)
		}
		c.Close()
	}
	testnet.Eventually(t, patience, "all flows have ended", func() error {
		if w.registry.Len() > 0 {
			return errors.New("some are live")
		}
		return nil
	})
	for _, l := range o.all() {
		if _, released := l.fate(); len(released) != 1 {
			t.Errorf("a lease was released for %v", released)
		}
	}
}
