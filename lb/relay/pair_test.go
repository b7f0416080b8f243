package relay

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb/handoff"
)

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
func stopAgainAndAgain(t testing.TB, p handoff.Pair, stops int, turns chan struct{}) (n int) {
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
