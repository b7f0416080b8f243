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
	bothFamilies(t, 1, func(t *testing.T, w world) {
		got := make(chan string, 1)
		w.Backends[0].Serve(8080, func(c net.Conn) {
			b, err := io.ReadAll(c) // to the client's FIN
			got <- fmt.Sprintf("%s %v", b, err)
			time.Sleep(2 * time.Second)
			_, _ = testnet.SendBulk(c, 1, answer)
		})
		b := start(t, w.Balancer, w.service(nil))
		c := w.dial(t)
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
			if f := b.flows(); len(f) == 1 && f[0].State == flow.HalfClosed {
				return nil
			}
			return fmt.Errorf("flows: %+v", b.flows())
		})
		sum, err := testnet.ReceiveBulk(c)
		if err != nil || sum != testnet.StreamSum(1, answer) {
			t.Fatalf("the answer: %v, error %v", sum, err)
		}
		v := b.endedOf(c.LocalAddr())
		wantEnd(t, v, flow.ByClient, flow.ReasonClosed)
		if v.BytesToBackend != 8 || v.BytesToClient != answer {
			t.Errorf("counted %d and %d bytes", v.BytesToBackend, v.BytesToClient)
		}
	})
}

// T1 the other way: a banner, the backend's FIN, then a long upload.
func TestHalfCloseByBackend(t *testing.T) {
	const upload = 100 << 20
	bothFamilies(t, 1, func(t *testing.T, w world) {
		got := make(chan testnet.Sum, 1)
		w.Backends[0].Serve(8080, func(c net.Conn) {
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
		wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByBackend, flow.ReasonClosed)
	})
}

// T2: a reset by the backend, after some bytes and in the middle of a stream, is a
// reset at the client, after those bytes.
func TestResetByBackend(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		for _, size := range []int64{0, 5, 300 << 10} {
			s := w.Backends[0].Serve(8080, func(c net.Conn) {
				_, _ = io.CopyN(io.Discard, c, 2)
				_, _ = testnet.SendBulk(c, 3, size)
				waitSent(c)
				testnet.Reset(c)
			})
			b := start(t, w.Balancer, w.service(nil))
			c := w.dial(t)
			_, _ = io.WriteString(c, "go")
			n, err := readEnd(c, 10*time.Second)
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%d bytes: the client's read ended with %v, want a reset", size, err)
			}
			if int64(n) != size {
				t.Errorf("the client got %d bytes of %d before the reset", n, size)
			}
			wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByBackend, flow.ReasonReset)
			_ = b.stop(syscall.SIGTERM)
			s.Close()
		}
	})
}

// T2, the reverse.
func TestResetByClient(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		for _, size := range []int64{0, 5, 300 << 10} {
			ended := make(chan string, 1)
			s := w.Backends[0].Serve(8080, func(c net.Conn) {
				n, err := readEnd(c, 10*time.Second)
				ended <- fmt.Sprintf("%d %v", n, errors.Is(err, syscall.ECONNRESET))
			})
			b := start(t, w.Balancer, w.service(nil))
			c := w.dial(t)
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
			wantEnd(t, b.endedOf(addr), flow.ByClient, flow.ReasonReset)
			_ = b.stop(syscall.SIGTERM)
			s.Close()
		}
	})
}

// T2 while both directions are full: one side resets, the other sees a reset.
func TestResetUnderLoad(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.Backends[0].Serve(8080, func(c net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			_, _ = testnet.SendBulk(c, 1, 8<<20)
			testnet.Reset(c)
		})
		b := start(t, w.Balancer, w.service(nil))
		c := w.dial(t)
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
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.Backends[0].Serve(8080, func(c net.Conn) { _, _ = io.Copy(io.Discard, c); testnet.Hold(c) })
		b := start(t, w.Balancer, w.service(nil, "timeouts: {halfClosed: 2s, idle: 1h}"))
		var open []*net.TCPConn
		for range 20 {
			open = append(open, w.dial(t))
		}
		for range clients {
			c := w.dial(t)
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
		for _, v := range b.flows() {
			if v.State != flow.Established {
				t.Errorf("a fully open flow is %s", v.State)
			}
		}
	})
}

// Idle flows end with a reset after timeouts.idle, busy ones do not.
func TestIdleTimeout(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, "timeouts: {idle: 1500ms}"))
		busy, idle := w.dial(t), w.dial(t)
		for _, c := range []*net.TCPConn{busy, idle} {
			if _, err := testnet.ReadName(c); err != nil {
				t.Fatal(err)
			}
		}
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

// T4: a peer vanishes, with data queued towards it and without.
func TestPeerVanishes(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, "timeouts: {keepalive: 1s, peerLost: 2s}"))
		idle, sending := w.dial(t), w.dial(t)
		for _, c := range []*net.TCPConn{idle, sending} {
			if _, err := testnet.ReadName(c); err != nil {
				t.Fatal(err)
			}
		}
		w.Backends[0].Mute()
		_, _ = io.WriteString(sending, strings.Repeat("x", 100<<10))
		for what, c := range map[string]*net.TCPConn{"idle": idle, "sending": sending} {
			if _, err := readEnd(c, 15*time.Second); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: the client's connection ended with %v, want a reset", what, err)
			}
			wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByBackend, flow.ReasonPeerLost)
		}
	})
}

// T4 with the client gone.
func TestClientVanishes(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		ended := make(chan error, 1)
		w.Backends[0].Serve(8080, func(c net.Conn) {
			_, err := readEnd(c, 15*time.Second)
			ended <- err
		})
		b := start(t, w.Balancer, w.service(nil, "timeouts: {keepalive: 1s, peerLost: 2s}"))
		c := w.dial(t)
		eventually(t, "the flow is established", func() error {
			if f := b.flows(); len(f) == 1 && f[0].State == flow.Established {
				return nil
			}
			return fmt.Errorf("flows: %+v", b.flows())
		})
		w.Client.Mute()
		if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the backend's connection ended with %v, want a reset", err)
		}
		wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByClient, flow.ReasonPeerLost)
	})
}

// T5: without a usable backend the port is closed, not opened and shut.
func TestNoUsableBackend(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
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
	bothFamilies(t, 3, func(t *testing.T, w world) {
		live := w.Backends[2].Serve(8080, testnet.Named("live"))
		b := start(t, w.Balancer, w.service(nil))
		for range 6 {
			if name := w.who(t); name != "live" {
				t.Fatalf("got %q", name)
			}
		}
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
	bothFamilies(t, 2, func(t *testing.T, w world) {
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
