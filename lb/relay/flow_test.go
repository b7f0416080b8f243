package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// control calls f with the descriptor of a connection.
func control(t testing.TB, c net.Conn, f func(fd int) error) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		var inner error
		err = raw.Control(func(fd uintptr) { inner = f(int(fd)) })
		err = errors.Join(err, inner)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fill writes until nothing more fits anywhere on the way.
func fill(t testing.TB, c net.Conn) {
	t.Helper()
	block := make([]byte, 64<<10)
	for {
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := c.Write(block); err != nil {
			return
		}
	}
}

// A client that resets its connection ends the flow also when its backend takes
// nothing, so that no event of that side will ever come.
func TestResetBehindAStuckBackend(t *testing.T) {
	w := newWorld(t, Options{})
	stuck, _ := backend(t, testnet.Hold)
	s := service("web", vip, stuck)
	s.Timeouts.HalfClosed = 200 * time.Millisecond
	w.serve(s)
	c := dial(t, vip)
	fill(t, c)
	testnet.Reset(c)
	wantEnd(t, w.ended(c.LocalAddr()), flow.ByClient, flow.ReasonReset)
}

// The other way: the backend resets in front of a client that takes nothing.
func TestResetBehindAStuckClient(t *testing.T) {
	w := newWorld(t, Options{})
	full := make(chan struct{})
	addr, _ := backend(t, func(c net.Conn) {
		fill(t, c)
		close(full)
		testnet.Reset(c)
	})
	s := service("web", vip, addr)
	s.Timeouts.HalfClosed = 200 * time.Millisecond
	w.serve(s)
	c := dial(t, vip)
	receive(t, full)
	wantEnd(t, w.ended(c.LocalAddr()), flow.ByBackend, flow.ReasonReset)
}

// A backend has answered and closed, and the client pauses for longer than
// timeouts.halfClosed before it reads on: the answer is whole.
func TestPausedClient(t *testing.T) {
	const answer = 1 << 20
	w := newWorld(t, Options{})
	addr, _ := backend(t, func(c net.Conn) { _, _ = testnet.SendBulk(c, 1, answer) })
	s := service("web", vip, addr)
	s.Timeouts.HalfClosed = 100 * time.Millisecond
	w.serve(s)
	c := dial(t, vip)
	control(t, c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<10) })
	rec := w.record(flow.HalfClosed)
	time.Sleep(500 * time.Millisecond)
	sum, err := testnet.ReceiveBulk(c)
	if err != nil || sum != testnet.StreamSum(1, answer) {
		t.Errorf("the client got %v, %v; the flow is %+v", sum, err, rec.View())
	}
	c.Close()
	w.ended(c.LocalAddr())
}

// A client that pauses in the middle of its answer, for longer than a lost peer
// is waited for, is not lost: it acknowledges, and only has no room.
func TestPausedClientIsNotLost(t *testing.T) {
	const answer = 8 << 20
	w := newWorld(t, Options{})
	addr, _ := backend(t, func(c net.Conn) { _, _ = testnet.SendBulk(c, 1, answer) })
	s := service("web", vip, addr)
	s.Timeouts.KeepAlive, s.Timeouts.PeerLost = time.Second, time.Second
	w.serve(s)
	c := dial(t, vip)
	control(t, c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<10) })
	w.record(flow.Established)
	time.Sleep(3500 * time.Millisecond)
	sum, err := testnet.ReceiveBulk(c)
	if err != nil || sum != testnet.StreamSum(1, answer) {
		t.Errorf("the client got %v, %v", sum, err)
	}
	c.Close()
	v := w.ended(c.LocalAddr())
	wantEnd(t, v, flow.ByBackend, flow.ReasonClosed)
}

// Timers: each state of a flow has its own.
func TestIdleTimeouts(t *testing.T) {
	for name, tt := range map[string]struct {
		timeouts func(*lb.Timeouts)
		client   func(*net.TCPConn)
		want     flow.Reason
	}{
		"idle": {
			func(t *lb.Timeouts) { t.Idle = 200 * time.Millisecond },
			func(*net.TCPConn) {},
			flow.ReasonIdle,
		},
		"half-closed": {
			func(t *lb.Timeouts) { t.HalfClosed = 200 * time.Millisecond },
			func(c *net.TCPConn) { _ = c.CloseWrite() },
			flow.ReasonHalfClosedIdle,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{})
			addr, _ := backend(t, func(c net.Conn) { testnet.Sink(c); testnet.Hold(c) })
			s := service("web", vip, addr)
			tt.timeouts(&s.Timeouts)
			w.serve(s)
			c := dial(t, vip)
			_, _ = io.WriteString(c, "hello")
			tt.client(c)
			if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client's end: %v", err)
			}
			v := w.ended(c.LocalAddr())
			wantEnd(t, v, flow.ByBaton, tt.want)
			if life := v.EndedAt.Sub(v.StartedAt); life < 200*time.Millisecond || v.BytesToBackend != 5 {
				t.Errorf("it lived %v: %+v", life, v)
			}
		})
	}
}

// An urgent byte stays in the stream, and the stream goes on behind it.
func TestUrgentByte(t *testing.T) {
	w := newWorld(t, Options{})
	got := make(chan string, 1)
	addr, _ := backend(t, func(c net.Conn) {
		b, err := io.ReadAll(c)
		got <- fmt.Sprint(string(b), err)
	})
	w.serve(service("web", vip, addr))
	c := dial(t, vip)
	_, _ = io.WriteString(c, "before")
	w.record(flow.Established)
	control(t, c, func(fd int) error { return unix.Sendto(fd, []byte("!"), unix.MSG_OOB, nil) })
	_, _ = io.WriteString(c, "behind")
	_ = c.CloseWrite()
	if s := receive(t, got); s != "before!behind<nil>" {
		t.Errorf("the backend got %q", s)
	}
}

// The backend speaks first, and both sides close in either order: every byte and
// the two ends arrive, also when the closing of both is under way at once.
func TestCloseOrders(t *testing.T) {
	w := newWorld(t, Options{})
	addr, _ := backend(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "banner")
		b, _ := io.ReadAll(c)
		_, _ = c.Write(b)
	})
	polite, _ := backend(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "banner")
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})
	second := netip.MustParseAddrPort("127.0.1.2:80")
	w.serve(service("client-first", vip, addr), service("backend-first", second, polite))
	for range 20 {
		for at, want := range map[netip.AddrPort]string{vip: "bannertext", second: "banner"} {
			c := dial(t, at)
			_, _ = io.WriteString(c, "text")
			_ = c.CloseWrite()
			b, err := io.ReadAll(c)
			if string(b) != want || err != nil {
				t.Fatalf("%s: got %q, %v", at, b, err)
			}
			v := w.ended(c.LocalAddr())
			if v.Reason != flow.ReasonClosed || v.BytesToBackend != 4 || v.BytesToClient != uint64(len(want)) {
				t.Fatalf("%s: %+v", at, v)
			}
			c.Close()
		}
	}
}

// A reset when one direction has ended already is still a reset.
func TestResetInFinStates(t *testing.T) {
	w := newWorld(t, Options{})
	closed := make(chan error, 1)
	addr, _ := backend(t, func(c net.Conn) { // waits for the client's end, then for the reset
		_, err := io.ReadAll(c)
		_, _ = io.WriteString(c, "answer")
		buf := make([]byte, 1)
		if err == nil {
			for err == nil { // EOF until the reset is there
				if _, err = c.Write(buf); err == nil {
					time.Sleep(time.Millisecond)
				}
			}
		}
		closed <- err
	})
	w.serve(service("web", vip, addr))
	c := dial(t, vip)
	_ = c.CloseWrite()
	if _, err := io.ReadFull(c, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	testnet.Reset(c)
	if err := receive(t, closed); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the backend's end: %v", err)
	}
	wantEnd(t, w.ended(c.LocalAddr()), flow.ByClient, flow.ReasonReset)
}

// An administrator may end a flow in any of its phases, at once.
func TestEndInEveryPhase(t *testing.T) {
	hold, _ := backend(t, testnet.Hold)
	sink, _ := backend(t, func(c net.Conn) { testnet.Sink(c); testnet.Hold(c) })
	full := fullBacklog(t)
	for name, tt := range map[string]struct {
		backend netip.AddrPort
		client  func(*net.TCPConn)
		state   flow.State
	}{
		"dialing":     {full, func(*net.TCPConn) {}, flow.Dialing},
		"open":        {sink, func(c *net.TCPConn) { _, _ = io.WriteString(c, "x") }, flow.Established},
		"full":        {hold, func(c *net.TCPConn) { fill(t, c) }, flow.Established},
		"half-closed": {sink, func(c *net.TCPConn) { _ = c.CloseWrite() }, flow.HalfClosed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{})
			s := service("web", vip, tt.backend)
			s.Timeouts.Connect = time.Hour
			w.serve(s)
			c := dial(t, vip)
			tt.client(c)
			rec := w.record(tt.state)
			if !rec.End(flow.ByBaton, flow.ReasonAdminReset) {
				t.Error("there was nothing to end")
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client's end: %v", err)
			}
			wantEnd(t, w.ended(c.LocalAddr()), flow.ByBaton, flow.ReasonAdminReset)
			rec.End(flow.ByBaton, flow.ReasonAdminReset) // too late: does nothing
		})
	}
}

// Many clients at once, each with bytes of its own, over several loops.
func TestManyClients(t *testing.T) {
	const clients, size = 200, 100 << 10
	w := newWorld(t, Options{Loops: 3})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, addr))
	errs := make(chan error, clients)
	for i := range clients {
		go func() { errs <- echo(uint64(i), size) }()
	}
	for range clients {
		if err := receive(t, errs); err != nil {
			t.Error(err)
		}
	}
	testnet.Eventually(t, patience, "all flows have ended", func() error {
		if n := w.registry.Len(); n != 0 {
			return fmt.Errorf("%d are live", n)
		}
		return nil
	})
	st := w.registry.Stats()
	for _, dir := range []flow.Direction{flow.ToBackend, flow.ToClient} {
		if n := st.Bytes[flow.BytesKey{Service: "web", Direction: dir, Path: flow.PathUserspace}]; n != clients*size {
			t.Errorf("%s: %d bytes counted, want %d", dir, n, clients*size)
		}
	}
}

// echo sends a stream through the VIP and wants it back.
func echo(seed uint64, size int64) error {
	c, err := net.DialTimeout("tcp", vip.String(), patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	sent := make(chan error, 1)
	go func() {
		_, err := testnet.SendBulk(c, seed, size)
		sent <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}()
	sum, err := testnet.ReceiveBulk(c)
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if sum != testnet.StreamSum(seed, size) {
		return fmt.Errorf("client %d: got %v", seed, sum)
	}
	return nil
}

// A big message arrives as it was, both ways at once.
func TestBothWaysAtOnce(t *testing.T) {
	w := newWorld(t, Options{})
	const size = 3 << 20 // on a busy machine, with the race detector, more takes longer than patience
	type end struct {
		sum testnet.Sum
		err error
	}
	ends := make(chan end, 1)
	both := func(c *net.TCPConn, seed uint64) end {
		sent := make(chan error, 1)
		go func() {
			_, err := testnet.SendBulk(c, seed, size)
			sent <- errors.Join(err, c.CloseWrite())
		}()
		sum, err := testnet.ReceiveBulk(c)
		return end{sum, errors.Join(err, <-sent)}
	}
	addr, _ := backend(t, func(c net.Conn) { ends <- both(c.(*net.TCPConn), 2) })
	w.serve(service("web", vip, addr))
	c := dial(t, vip)
	_ = c.SetDeadline(time.Now().Add(6 * patience))
	if got := both(c, 1); got.err != nil || got.sum != testnet.StreamSum(2, size) {
		t.Errorf("the client got %v, %v", got.sum, got.err)
	}
	if got := receive(t, ends); got.err != nil || got.sum != testnet.StreamSum(1, size) {
		t.Errorf("the backend got %v, %v", got.sum, got.err)
	}
}
