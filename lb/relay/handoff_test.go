package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
)

// handOff moves a flow to a path of the test's, and closes its sockets.
func handOff(t testing.TB, p handoff.Pair) *fakePath {
	t.Helper()
	s, ok := p.Stop()
	if !ok {
		t.Fatal("it could not be stopped")
	}
	path := newFakePath()
	p.HandedOff(flow.PathBPF, path)
	closeAll(s.ClientFD, s.BackendFD)
	return path
}

// wantState checks where a flow stands.
func wantState(t testing.TB, p handoff.Pair, want flow.State) {
	t.Helper()
	if got := p.Record().View().State; got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
}

// While a flow is on hold nothing moves but the header that its backend is to begin
// with; what its client has sent waits in the socket.
func TestHold(t *testing.T) {
	for _, resume := range []bool{true, false} {
		o := newFakeOffloader()
		o.hold = true
		w := newWorld(t, Options{Offloader: o})
		got := make(chan string, 10)
		addr, _ := backend(t, func(c net.Conn) {
			buf := make([]byte, 1000)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				got <- string(buf[:n])
			}
		})
		s := service("web", vip, addr)
		s.ClientAddress = lb.ProxyV1
		w.serve(s)
		c := dial(t, vip)
		if _, err := io.WriteString(c, "payload"); err != nil {
			t.Fatal(err)
		}
		if h := receive(t, got); !strings.HasPrefix(h, "PROXY TCP4 ") || !strings.HasSuffix(h, "\r\n") {
			t.Errorf("the backend got %q", h)
		}
		p := receive(t, o.offers)
		control(t, c, waitAcknowledged)
		stopped, ok := p.Stop()
		if !ok || len(stopped.ToBackend)+len(stopped.ToClient) != 0 || unread(stopped.ClientFD) != len("payload") {
			t.Fatalf("stopped: %v, %+v, %d bytes wait", ok, stopped, unread(stopped.ClientFD))
		}
		wantState(t, p, flow.HandingOff)
		if len(got) != 0 {
			t.Errorf("and then it got %q", receive(t, got))
		}
		if resume {
			p.Resume(nil, nil)
			if b := receive(t, got); b != "payload" {
				t.Errorf("the backend got %q", b)
			}
			wantState(t, p, flow.Established)
		} else {
			path := newFakePath()
			p.HandedOff(flow.PathBPF, path)
			path.carry(t, stopped.ClientFD, stopped.BackendFD, &path.counters.BytesToBackend)
			if b := receive(t, got); b != "payload" {
				t.Errorf("the backend got %q", b)
			}
			if v := p.Record().View(); v.BytesToBackend != 7 || v.State != flow.Offloaded || v.HandedOffAt.IsZero() {
				t.Errorf("%+v", v)
			}
			closeAll(stopped.ClientFD, stopped.BackendFD)
			p.Record().Finish(flow.ByClient, flow.ReasonClosed)
		}
		c.Close()
		w.ended(c.LocalAddr())
		w.close()
	}
}

// A flow that is on hold and that nobody comes for goes on by itself.
func TestHoldEndsByItself(t *testing.T) {
	o := newFakeOffloader()
	o.hold = true
	w := newWorld(t, Options{Offloader: o})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, addr))
	c := dial(t, vip)
	p := receive(t, o.offers)
	w.record(flow.HandingOff)
	began := time.Now()
	if err := testnet.Ask(c, "x"); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d < holdLimit/2 {
		t.Errorf("it was on hold for %s", d)
	}
	wantState(t, p, flow.Established)
	s, ok := p.Stop() // and may be stopped all the same
	if !ok {
		t.Fatal("it could not be stopped")
	}
	p.Resume(s.ToBackend, s.ToClient)
	if err := testnet.Ask(c, "y"); err != nil {
		t.Error(err)
	}
}

// A flow on hold ends as any other does.
func TestHoldMeetsTheEnd(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(c *net.TCPConn, rec *flow.Record)
		by   flow.By
		why  flow.Reason
		got  string // by the backend
	}{
		{"the client resets", func(c *net.TCPConn, _ *flow.Record) { testnet.Reset(c) }, flow.ByClient, flow.ReasonReset, ""},
		{"the client sends and resets", func(c *net.TCPConn, _ *flow.Record) {
			_, _ = io.WriteString(c, "payload")
			control(t, c, waitAcknowledged)
			testnet.Reset(c)
		}, flow.ByClient, flow.ReasonReset, "payload"},
		{"the client closes", func(c *net.TCPConn, _ *flow.Record) {
			_, _ = io.WriteString(c, "payload")
			_ = c.CloseWrite()
		}, flow.ByClient, flow.ReasonClosed, "payload"},
		{"the backend closes", func(c *net.TCPConn, _ *flow.Record) {}, flow.ByBackend, flow.ReasonClosed, "payload"},
		{"somebody ends it", func(_ *net.TCPConn, rec *flow.Record) { rec.End(flow.ByBaton, flow.ReasonAdminReset) }, flow.ByBaton, flow.ReasonAdminReset, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newFakeOffloader()
			o.hold = true
			w := newWorld(t, Options{Offloader: o})
			got := make(chan string, 1)
			addr, _ := backend(t, func(c net.Conn) {
				if tt.by == flow.ByBackend {
					_ = c.(*net.TCPConn).CloseWrite()
				}
				b, _ := io.ReadAll(c)
				got <- string(b)
			})
			w.serve(service("web", vip, addr))
			c := dial(t, vip)
			p := receive(t, o.offers)
			began := time.Now()
			tt.do(c, p.Record())
			if tt.by == flow.ByBackend { // its client hears of it and closes too
				if _, err := io.ReadAll(c); err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(c, tt.got)
				c.Close()
			}
			if b := receive(t, got); b != tt.got {
				t.Errorf("the backend got %q", b)
			}
			if d := time.Since(began); d > holdLimit {
				t.Errorf("the hold lasted %s", d)
			}
			c.Close()
			wantEnd(t, w.ended(c.LocalAddr()), tt.by, tt.why)
			wantReleased(t, o.all()[0], tt.why)
			if _, ok := p.Stop(); ok {
				t.Error("it was stopped")
			}
		})
	}
}

// A client that has closed its direction before its flow is offered waits for nobody.
func TestNoHoldForWhoHasClosed(t *testing.T) {
	o := newFakeOffloader()
	o.hold = true
	w := newWorld(t, Options{Offloader: o, Loops: 1})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, addr))
	resume := w.pause(0)
	c := dial(t, vip)
	_, _ = io.WriteString(c, "payload")
	_ = c.CloseWrite()
	control(t, c, waitAcknowledged)
	began := time.Now()
	resume()
	if b, err := io.ReadAll(c); string(b) != "payload" || err != nil {
		t.Errorf("the echo is %q, %v", b, err)
	}
	if d := time.Since(began); d > holdLimit {
		t.Errorf("it was on hold for %s", d)
	}
}

// A flow says that it stands still, and no longer when it goes on.
func TestHandingOff(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, addr))
	c := dial(t, vip)
	p := receive(t, o.offers)
	for range 3 {
		s, ok := p.Stop()
		if !ok {
			t.Fatal("it could not be stopped")
		}
		wantState(t, p, flow.HandingOff)
		p.Resume(s.ToBackend, s.ToClient)
		wantState(t, p, flow.Established)
	}
	if err := testnet.Ask(c, "x"); err != nil {
		t.Error(err)
	}
}

// What whoever has stopped a flow delivers itself is counted, and is the first byte
// if it is that.
func TestMoved(t *testing.T) {
	for _, resume := range []bool{true, false} {
		o := newFakeOffloader()
		w := newWorld(t, Options{Offloader: o})
		addr, _ := backend(t, testnet.Echo)
		w.serve(service("web", vip, addr))
		events := w.registry.Subscribe(nil, 100)
		c := dial(t, vip)
		p := receive(t, o.offers)
		s, ok := p.Stop()
		if !ok {
			t.Fatal("it could not be stopped")
		}
		asked := make(chan error, 1)
		go func() { asked <- testnet.Ask(c, "payload") }()
		by := newFakePath() // a hand to move with
		by.carry(t, s.ClientFD, s.BackendFD, &by.counters.BytesToBackend)
		by.carry(t, s.BackendFD, s.ClientFD, &by.counters.BytesToClient)
		if err := receive(t, asked); err != nil {
			t.Error(err)
		}
		p.Moved(by.counters.BytesToBackend, by.counters.BytesToClient)
		want := by.counters.BytesToBackend
		if resume {
			p.Resume(nil, nil)
			if err := testnet.Ask(c, "payload"); err != nil {
				t.Error(err)
			}
			want *= 2
		} else {
			path := newFakePath()
			p.HandedOff(flow.PathBPF, path)
			closeAll(s.ClientFD, s.BackendFD)
		}
		p.Moved(100, 100) // too late
		if v := p.Record().View(); v.BytesToBackend != want || v.BytesToClient != want || v.LastSeenAt.IsZero() {
			t.Errorf("%+v", v)
		}
		first := map[flow.By]int{}
		for len(events.C) > 0 {
			if e := <-events.C; e.Event == flow.EventFirstByte {
				first[e.From]++
			}
		}
		if first[flow.ByClient] != 1 || first[flow.ByBackend] != 1 {
			t.Errorf("first bytes: %v", first)
		}
		events.Close()
		if !resume {
			p.Record().Finish(flow.ByClient, flow.ReasonClosed)
		}
		c.Close()
		w.ended(c.LocalAddr())
		w.close()
	}
}

// After an attempt that came to nothing the kernel watches over both peers as before.
func TestResumeWatchesPeers(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, addr))
	dial(t, vip)
	p := receive(t, o.offers)
	f := p.(pair).f
	_ = f.w.loop.Call(f.settle)
	s, ok := p.Stop()
	if !ok {
		t.Fatal("it could not be stopped")
	}
	for _, fd := range []int{s.ClientFD, s.BackendFD} {
		if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0),
			unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 0)); err != nil {
			t.Fatal(err)
		}
	}
	p.Resume(s.ToBackend, s.ToClient)
	for _, fd := range []int{s.ClientFD, s.BackendFD} {
		if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE); on != 1 || err != nil {
			t.Errorf("keepalive is %d, %v", on, err)
		}
		if ms, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); ms != 120_000 || err != nil {
			t.Errorf("the timeout is %d ms, %v", ms, err)
		}
	}
}

// For a peer that pauses while an attempt comes to nothing the kernel's timeout stays
// lifted, or is lifted.
func TestResumeMindsPauses(t *testing.T) {
	const size = 16 << 20 // more than the sockets between take
	sysctl(t, "tcp_wmem", "4096 16384 65536")
	sysctl(t, "tcp_rmem", "4096 16384 65536")
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o})
	addr, _ := backend(t, func(c net.Conn) { _, _ = testnet.SendBulk(c, 1, size) })
	w.serve(service("web", vip, addr))
	c := dial(t, vip)
	p := receive(t, o.offers)
	tried := func(left int) (timeout int) { // what the Offloader has left behind
		t.Helper()
		s, ok := p.Stop()
		if !ok {
			t.Fatal("it could not be stopped")
		}
		fd := s.ClientFD
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, left); err != nil {
			t.Fatal(err)
		}
		p.Resume(s.ToBackend, s.ToClient)
		timeout, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		if err != nil {
			t.Fatal(err)
		}
		return timeout
	}
	for _, left := range []int{120_000, 0} {
		testnet.Eventually(t, 10*time.Second, "the client's timeout is lifted", func() error {
			if timeout := tried(left); timeout != 0 {
				return fmt.Errorf("it is %d ms", timeout)
			}
			return nil
		})
	}
	if sum, err := testnet.ReceiveBulk(c); err != nil || sum != testnet.StreamSum(1, size) {
		t.Errorf("the client got %v, %v", sum, err)
	}
}
