package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// soak skips a test that is too long for every day.
func soak(t *testing.T) {
	t.Helper()
	if os.Getenv("BATON_SOAK") == "" {
		t.Skip("long: run by make soak (BATON_SOAK=1)")
	}
}

// parallel runs f for each of n numbers, a few at a time.
func parallel(n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				f(int(i - 1))
			}
		})
	}
	wg.Wait()
}

// Many connections are open at once, each echoes, none is lost.
func TestManyConnections(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) { w.holdMany(t, 1000) })
}

// TestSoakManyConnections is as many as the descriptors of one process allow, and
// how much memory each of them costs.
func TestSoakManyConnections(t *testing.T) {
	soak(t)
	bothFamilies(t, 1, func(t *testing.T, w world) {
		each := w.holdMany(t, 9000)
		if limit := int64(12 << 10); each > limit {
			t.Errorf("an idle connection costs %d bytes of process memory, more than %d", each, limit)
		}
	})
}

// thriftyEcho is an Echo that needs no pipe, which io.Copy holds while it waits.
func thriftyEcho(c net.Conn) {
	_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 64))
}

// holdMany returns the growth of process memory for each connection.
func (w world) holdMany(t *testing.T, n int) (each int64) {
	t.Helper()
	s := w.Backends[0].Serve(8080, thriftyEcho)
	b := start(t, w.Balancer, w.service(nil))
	ask := func(c net.Conn, i int) {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if err := testnet.Ask(c, fmt.Sprintf("this is %d", i)); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	first := w.dial(t)
	ask(first, 0)
	first.Close()
	b.wantFlows(0)
	before := b.usage()
	conns := make([]net.Conn, n)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	parallel(n, func(i int) {
		c, err := w.Client.Dial("tcp", w.vip)
		if err != nil {
			t.Errorf("connection %d: %v", i, err)
			return
		}
		conns[i] = c
		ask(c, i)
	})
	if t.Failed() {
		t.FailNow()
	}
	if open, flows := s.Open(), b.metric("baton_flows_active", `service="web"`); open != n || flows != float64(n) {
		t.Errorf("%d connections at the backend and %v flows, want %d", open, flows, n)
	}
	parallel(n, func(i int) { ask(conns[i], i) })
	full := b.usage()
	each = (full.rss - before.rss) / int64(n)
	t.Logf("%d connections: %d bytes of process memory each; empty %v, full %v", n, each, before, full)
	if perFlow := (full.descriptors - before.descriptors) / n; perFlow > 2 {
		t.Errorf("%d descriptors for each idle connection, want 2", perFlow)
	}
	for _, c := range conns {
		c.Close()
	}
	eventually(t, "all have ended", func() error {
		if left := b.metric("baton_flows_active", `service="web"`); left != 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
	b.settles(before)
	return each
}

// Connections that come and go leave nothing behind.
func TestComeAndGo(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) { w.comeAndGo(t, 3000) })
}

// TestSoakComeAndGo is a hundred thousand of them, and memory counts too.
func TestSoakComeAndGo(t *testing.T) {
	soak(t)
	bothFamilies(t, 2, func(t *testing.T, w world) {
		before, after := w.comeAndGo(t, 100_000)
		if grown := after.rss - before.rss; grown > before.rss/10 {
			t.Errorf("the process grew by %d KiB", grown>>10)
		}
	})
}

func (w world) comeAndGo(t *testing.T, n int) (before, after usage) {
	t.Helper()
	// The backend closes first: so no port of the client waits for its reuse.
	for _, h := range w.Backends {
		h.Serve(8080, func(c net.Conn) { _, _ = c.Write([]byte("hello\n")) })
	}
	b := start(t, w.Balancer, w.service(nil, sticky))
	visit := func(i int) {
		c, err := w.Client.Dial("tcp", w.vip)
		if err != nil {
			t.Errorf("connection %d: %v", i, err)
			return
		}
		defer c.Close()
		if got, err := readEnd(c, 20*time.Second); got != len("hello\n") || err != nil {
			t.Errorf("connection %d: %d bytes, %v", i, got, err)
		}
	}
	parallel(n/4, visit) // what grows to its size once has done so
	b.wantFlows(0)
	before = b.usage()
	began := time.Now()
	parallel(n, visit)
	took := time.Since(began)
	b.wantFlows(0)
	b.settles(before)
	after = b.usage()
	t.Logf("%d connections in %v (%.0f a second): before %v, after %v", n, took, float64(n)/took.Seconds(), before, after)
	return before, after
}
