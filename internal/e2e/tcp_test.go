package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// T1: the client sends, shuts down writing, and the answer comes much later.
func TestHalfCloseByClient(t *testing.T) {
	const answer = 1 << 20
	everyPath(t, 1, func(t *testing.T, w world) {
		got := make(chan string, 1)
		w.Backends[0].Serve(8080, func(c net.Conn) {
			b, err := io.ReadAll(c) // to the client's FIN
			got <- fmt.Sprintf("%s %v", b, err)
			time.Sleep(2 * time.Second)
			_, _ = testnet.SendBulk(c, 1, answer)
		})
		b := start(t, w.Balancer, w.service(nil))
		c := w.dial(t)
		w.carried(b, c)
		if _, err := io.WriteString(c, "question"); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if s := <-got; s != "question <nil>" {
			t.Fatalf("the backend read %q", s)
		}
		eventually(t, "the flow is half-closed", func() error {
			f := b.flows()
			if len(f) == 1 && (f[0].State == flow.HalfClosed || w.path() == flow.PathBPF && f[0].State == flow.Offloaded) {
				return nil
			}
			return fmt.Errorf("flows: %+v", f)
		})
		sum, err := testnet.ReceiveBulk(c)
		if err != nil || sum != testnet.StreamSum(1, answer) {
			t.Fatalf("the answer: %v, error %v", sum, err)
		}
		v := b.endedOf(c.LocalAddr())
		wantEnd(t, v, flow.ByClient, flow.ReasonClosed)
		w.wantPath(t, v)
		if v.BytesToBackend != 8 || v.BytesToClient != answer {
			t.Errorf("counted %d and %d bytes", v.BytesToBackend, v.BytesToClient)
		}
	})
}

// T1 the other way: a banner, the backend's FIN, then a long upload.
func TestHalfCloseByBackend(t *testing.T) {
	const upload = 100 << 20
	everyPath(t, 1, func(t *testing.T, w world) {
		got, begin := make(chan testnet.Sum, 1), make(chan struct{})
		w.Backends[0].Serve(8080, func(c net.Conn) {
			<-begin
			_, _ = io.WriteString(c, "banner\n")
			_ = c.(*net.TCPConn).CloseWrite()
			sum, err := testnet.ReceiveBulk(c)
			if err != nil {
				t.Errorf("the backend read: %v", err)
			}
			got <- sum
		})
		b := start(t, w.Balancer, w.service(nil))
		c := w.dial(t)
		w.carried(b, c)
		close(begin)
		banner, err := io.ReadAll(c)
		if string(banner) != "banner\n" || err != nil {
			t.Fatalf("read %q, %v", banner, err)
		}
		if _, err := testnet.SendBulk(c, 2, upload); err != nil {
			t.Fatalf("upload: %v", err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if sum := <-got; sum != testnet.StreamSum(2, upload) {
			t.Errorf("the backend got %v", sum)
		}
		v := b.endedOf(c.LocalAddr())
		wantEnd(t, v, flow.ByBackend, flow.ReasonClosed)
		w.wantPath(t, v)
	})
}

// T2: a reset by the backend, after some bytes and in the middle of a stream, is a
// reset at the client, after those bytes.
func TestResetByBackend(t *testing.T) {
	everyPath(t, 1, func(t *testing.T, w world) {
		b := start(t, w.Balancer, w.service(nil))
		for _, size := range []int64{0, 5, 300 << 10} {
			s := w.Backends[0].Serve(8080, func(c net.Conn) {
				_, _ = io.CopyN(io.Discard, c, 2)
				_, _ = testnet.SendBulk(c, 3, size)
				waitSent(c)
				testnet.Reset(c)
			})
			c := w.dial(t)
			w.carried(b, c)
			_, _ = io.WriteString(c, "go")
			n, err := readEnd(c, 10*time.Second)
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%d bytes: the client's read ended with %v, want a reset", size, err)
			}
			if int64(n) != size {
				t.Errorf("the client got %d bytes of %d before the reset", n, size)
			}
			v := b.endedOf(c.LocalAddr())
			wantEnd(t, v, flow.ByBackend, flow.ReasonReset)
			w.wantPath(t, v)
			s.Close()
		}
	})
}

// T2, the reverse.
func TestResetByClient(t *testing.T) {
	everyPath(t, 1, func(t *testing.T, w world) {
		b := start(t, w.Balancer, w.service(nil))
		for _, size := range []int64{0, 5, 300 << 10} {
			ended := make(chan string, 1)
			s := w.Backends[0].Serve(8080, func(c net.Conn) {
				n, err := readEnd(c, 10*time.Second)
				ended <- fmt.Sprintf("%d %v", n, errors.Is(err, syscall.ECONNRESET))
			})
			c := w.dial(t)
			w.carried(b, c)
			_, _ = testnet.SendBulk(c, 3, size)
			eventually(t, "the backend has accepted", func() error {
				if s.Open() == 1 {
					return nil
				}
				return errors.New("it has not")
			})
			waitSent(c)
			addr := c.LocalAddr()
			testnet.Reset(c)
			if got, want := <-ended, fmt.Sprintf("%d true", size); got != want {
				t.Errorf("the backend got %q (bytes, reset), want %q", got, want)
			}
			v := b.endedOf(addr)
			wantEnd(t, v, flow.ByClient, flow.ReasonReset)
			w.wantPath(t, v)
			s.Close()
		}
	})
}

// T2 while both directions are full: one side resets, the other sees a reset.
func TestResetUnderLoad(t *testing.T) {
	everyPath(t, 1, func(t *testing.T, w world) {
		w.Backends[0].Serve(8080, func(c net.Conn) {
			_, _ = io.CopyN(io.Discard, c, 1)
			go func() { _, _ = io.Copy(io.Discard, c) }()
			_, _ = testnet.SendBulk(c, 1, 8<<20)
			testnet.Reset(c)
		})
		b := start(t, w.Balancer, w.service(nil))
		c := w.dial(t)
		w.carried(b, c)
		// Whichever of read(2) and write(2) comes first after the reset is told of
		// it, and only that one.
		wrote := make(chan error, 1)
		go func() { _, err := testnet.SendBulk(c, 2, 1<<40); wrote <- err }()
		_, err := readEnd(c, 20*time.Second)
		if err := errors.Join(err, <-wrote); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client's connection ended with %v, want a reset", err)
		}
		wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByBackend, flow.ReasonReset)
	})
}

// T3: a thousand clients half-close and the backend never does; only those go.
func TestHalfClosedIdle(t *testing.T) {
	const clients = 1000
	everyPath(t, 1, func(t *testing.T, w world) {
		w.Backends[0].Serve(8080, func(c net.Conn) { _, _ = io.Copy(io.Discard, c); testnet.Hold(c) })
		b := start(t, w.Balancer, w.service(nil, "timeouts: {halfClosed: 2s, idle: 1h}"))
		var open []*net.TCPConn
		for range 20 {
			open = append(open, w.dial(t))
		}
		var closing []*net.TCPConn
		for range clients {
			closing = append(closing, w.dial(t))
		}
		w.carried(b, closing...)
		for _, c := range closing {
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the half-closed ones are gone", func() error {
			if n := len(b.flows()); n != len(open) {
				return fmt.Errorf("%d flows are live, want %d", n, len(open))
			}
			return nil
		})
		for _, v := range b.ended() {
			wantEnd(t, v, flow.ByBaton, flow.ReasonHalfClosedIdle)
		}
		w.carried(b, open...)
	})
}

// Idle flows end with a reset after timeouts.idle, busy ones do not.
func TestIdleTimeout(t *testing.T) {
	everyPath(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, "timeouts: {idle: 1500ms}"))
		busy, idle := w.dial(t), w.dial(t)
		for _, c := range []*net.TCPConn{busy, idle} {
			if _, err := testnet.ReadName(c); err != nil {
				t.Fatal(err)
			}
		}
		w.carried(b, busy, idle)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 12 {
				if err := testnet.Ask(busy, "still here"); err != nil {
					t.Errorf("the busy connection: %v", err)
				}
				time.Sleep(250 * time.Millisecond)
			}
		})
		if _, err := readEnd(idle, 10*time.Second); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the idle connection ended with %v, want a reset", err)
		}
		wg.Wait()
		wantEnd(t, b.endedOf(idle.LocalAddr()), flow.ByBaton, flow.ReasonIdle)
	})
}

// lostPeers are timeouts after which a peer that is gone is given up. A flow in the
// kernel has no keepalive of ours: while nobody sends, its idle timeout has to do.
const lostPeers = "timeouts: {keepalive: 1s, peerLost: 2s, idle: 4s}"

// wantLost checks that a flow ended because a peer was gone.
func (w world) wantLost(t *testing.T, v flow.View, peer flow.By, sending bool) {
	t.Helper()
	if w.wantPath(t, v); w.inKernel() && !sending {
		wantEnd(t, v, flow.ByBaton, flow.ReasonIdle)
		return
	}
	wantEnd(t, v, peer, flow.ReasonPeerLost)
}

// T4: a peer vanishes, with data queued towards it and without.
func TestPeerVanishes(t *testing.T) {
	bothPaths(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, lostPeers))
		idle, sending := w.dial(t), w.dial(t)
		for _, c := range []*net.TCPConn{idle, sending} {
			if _, err := testnet.ReadName(c); err != nil {
				t.Fatal(err)
			}
		}
		w.carried(b, idle, sending)
		w.Backends[0].Mute()
		wrote := make(chan error, 2)
		wrote <- nil // for the one that is idle
		go func() { _, err := io.WriteString(sending, strings.Repeat("x", 100<<10)); wrote <- err }()
		for _, c := range []*net.TCPConn{idle, sending} {
			_, read := readEnd(c, 15*time.Second)
			// Only one of read(2) and write(2) is told.
			if err := <-wrote; !errors.Is(read, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("sending %v: the client's connection ended with %v and %v, want a reset", c == sending, read, err)
			}
			w.wantLost(t, b.endedOf(c.LocalAddr()), flow.ByBackend, c == sending)
		}
	})
}

// T4 with the client gone.
func TestClientVanishes(t *testing.T) {
	bothPaths(t, 1, func(t *testing.T, w world) {
		ended := make(chan error, 1)
		w.Backends[0].Serve(8080, func(c net.Conn) {
			_, err := readEnd(c, 15*time.Second)
			ended <- err
		})
		b := start(t, w.Balancer, w.service(nil, lostPeers))
		c := w.dial(t)
		w.carried(b, c)
		w.Client.Mute()
		if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the backend's connection ended with %v, want a reset", err)
		}
		w.wantLost(t, b.endedOf(c.LocalAddr()), flow.ByClient, false)
	})
}

// T5: without a usable backend the port is closed, not opened and shut.
func TestNoUsableBackend(t *testing.T) {
	everyPath(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		down := fmt.Sprintf("{address: %q, state: down}", w.backend(0))
		b := start(t, w.Balancer, w.service([]string{down}))
		if err := w.refused(t, w.Client); err != nil {
			t.Error(err)
		}
		b.configure(w.service(nil))
		eventually(t, "the VIP serves", func() error { _, err := w.Client.AskName(w.vip); return err })
		b.configure(w.service([]string{}))
		eventually(t, "the VIP refuses", func() error { return w.refused(t, w.Client) })
	})
}

// T5: one backend refuses, the others are tried; all refuse, the client is reset.
func TestDialFailover(t *testing.T) {
	bothPaths(t, 3, func(t *testing.T, w world) {
		live := w.Backends[2].Serve(8080, testnet.Named("live"))
		b := start(t, w.Balancer, w.service(nil))
		for range 6 {
			if name := w.who(t); name != "live" {
				t.Fatalf("got %q", name)
			}
		}
		b.wantFlows(0)
		retried := 0
		for _, v := range b.ended() {
			if v.Picked == flow.ByRetry {
				retried++
			}
		}
		if retried < 3 {
			t.Errorf("%d of 6 flows say that they were retried", retried)
		}
		live.Close()
		if err := reset(w); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the connection ended with %v, want a reset", err)
		}
		eventually(t, "the record says why", func() error {
			for _, v := range b.ended() {
				if v.EndedBy == flow.ByBackend && v.Reason == flow.ReasonDialFailed {
					return nil
				}
			}
			return fmt.Errorf("ended: %+v", b.ended())
		})
		for _, row := range b.backends() {
			if row.Failures == 0 {
				t.Errorf("%s has no failures", row.Backend)
			}
		}
	})
}

// reset connects and waits for the end. The reset may come so soon that connect(2)
// reports it.
func reset(w world) error {
	c, err := w.Client.Dial("tcp", w.vip)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = readEnd(c, 10*time.Second)
	return err
}

// A backend that does not answer costs timeouts.connect, not more.
func TestDialTimeout(t *testing.T) {
	bothPaths(t, 2, func(t *testing.T, w world) {
		w.serveNamed()
		w.Backends[0].Mute()
		b := start(t, w.Balancer, w.service(nil, "timeouts: {connect: 300ms}"))
		for range 4 {
			if name := w.who(t); name != w.Backends[1].Name() {
				t.Fatalf("got %q", name)
			}
		}
		for _, row := range b.backends() {
			silent := row.Backend == w.backend(0).String()
			if silent != (row.Failures > 0) {
				t.Errorf("%s has %d failures", row.Backend, row.Failures)
			}
		}
	})
}
