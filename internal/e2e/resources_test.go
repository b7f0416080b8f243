package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// limited has the command run with that many descriptors.
func (b *baton) limited(descriptors int) {
	script := fmt.Sprintf("ulimit -n %d && exec \"$0\" \"$@\"", descriptors)
	b.cmd.Args = append([]string{"sh", "-c", script}, b.cmd.Args...)
	b.cmd.Path = "/bin/sh"
}

// R4: few descriptors and a flood. The clients that find no room wait, the
// process does not spin, the API answers, it is counted, and all are served once
// there is room again.
func TestFlood(t *testing.T) {
	const clients, window = 600, 1500 * time.Millisecond
	bothFamilies(t, 1, func(t *testing.T, w world) {
		t.Parallel()
		s := w.Backends[0].Serve(8080, testnet.Named("backend"))
		b := prepare(t, w.Balancer, t.TempDir(), w.service(nil))
		b.limited(256)
		b.run()
		b.waitServing()
		w.who(t)
		b.wantFlows(0)
		quiet := b.usage()
		var open []*conn
		for range clients {
			open = append(open, &conn{w.dial(t)})
		}
		served := 0
		eventually(t, "as many are served as there is room for", func() error {
			before := served
			if served = s.Accepted() - 1; served == before && served > 50 && b.metric("baton_drops_total", `reason="no-descriptors"`) > 0 {
				return nil
			}
			return fmt.Errorf("%d are served", served)
		})
		if served > 128 {
			t.Errorf("%d are served with 256 descriptors", served)
		}
		cpu, began := b.cpu(), time.Now()
		for time.Since(began) < window {
			if _, err := b.text("/readyz"); err != nil {
				t.Errorf("the API does not answer: %v", err)
			}
			time.Sleep(window / 10)
		}
		if busy := b.cpu() - cpu; busy > time.Since(began)/4 {
			t.Errorf("while it waits for room the process computed %v in %v", busy, time.Since(began))
		}
		var wg sync.WaitGroup
		for _, c := range open {
			wg.Go(func() {
				_ = c.SetDeadline(time.Now().Add(30 * time.Second))
				if _, err := testnet.ReadName(c); err != nil {
					t.Errorf("a client that waited: %v", err)
				}
				c.ends(t)
			})
		}
		wg.Wait()
		if n := s.Accepted() - 1; n != clients {
			t.Errorf("%d of %d reached the backend", n, clients)
		}
		b.wantFlows(0)
		b.settles(quiet)
		w.who(t)
	})
}

// settles waits until the process has as many descriptors as once before, and no
// more goroutines.
func (b *baton) settles(before usage) {
	b.t.Helper()
	b.http.CloseIdleConnections()
	eventually(b.t, "descriptors and goroutines are as before", func() error {
		now := b.usage()
		// The connection that asks comes and goes.
		if now.descriptors > before.descriptors+1 || now.goroutines > before.goroutines+3 {
			return fmt.Errorf("they were %v and are %v", before, now)
		}
		return nil
	})
}

// echoes is a set of connections that ask one after the other.
type echoes []*conn

// echoing opens n connections.
func (w world) echoing(t *testing.T, n int) (e echoes) {
	t.Helper()
	for range n {
		c, _ := w.named(t)
		e = append(e, c)
	}
	return e
}

// p99 asks n times and returns how long all but the slowest hundredth took.
func (e echoes) p99(t *testing.T, n int) time.Duration {
	t.Helper()
	took := make([]time.Duration, n)
	line := []byte("0123456789abcdef0123456789abcdef")
	got := make([]byte, len(line))
	for i := range took {
		c := e[i%len(e)]
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		began := time.Now()
		_, err := c.Write(line)
		if err == nil {
			_, err = io.ReadFull(c, got)
		}
		if err != nil {
			t.Fatalf("echo %d: %v", i, err)
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[n*99/100]
}

// unnoticed fails when the second p99 is so far from the first that no other load
// of the machine explains it: whoever waits for another flow, or for the control
// plane, waits for long.
func unnoticed(t *testing.T, before, during time.Duration) {
	t.Helper()
	if during > 50*before && during > 25*time.Millisecond {
		t.Errorf("the p99 was %v and is %v", before, during)
	}
}

// best is the least of a few measurements, which other loads of the machine have
// disturbed least.
func best(measure func() time.Duration) time.Duration {
	least := measure()
	for range 4 {
		least = min(least, measure())
	}
	return least
}

// hungry sends for ever to whoever asks for it.
func hungry(c net.Conn) {
	piece := make([]byte, 64<<10)
	for {
		if _, err := c.Write(piece); err != nil {
			return
		}
	}
}

// R5: readers that never read and backends that never answer: the others do not
// notice.
func TestSlowPeers(t *testing.T) {
	const asks, slow = 1000, 8
	bothFamilies(t, 1, func(t *testing.T, w world) {
		h := w.Backends[0]
		h.Serve(8080, testnet.Named("echo"))
		h.Serve(8081, hungry)
		h.Serve(8082, testnet.Hold)
		others := w.service(nil)
		for i, port := range []uint16{8081, 8082} {
			others += fmt.Sprintf("  - name: s%d\n    frontends: [\"tcp://%s\"]\n    backends: [%q]\n",
				i, netip.AddrPortFrom(w.vip.Addr(), port), netip.AddrPortFrom(w.addr(h), port))
		}
		b := start(t, w.Balancer, others)
		e := w.echoing(t, 20)
		before := best(func() time.Duration { return e.p99(t, asks) })

		unread, unanswered := w, w
		unread.vip = netip.AddrPortFrom(w.vip.Addr(), 8081)
		unanswered.vip = netip.AddrPortFrom(w.vip.Addr(), 8082)
		for range slow {
			unread.dial(t) // and never reads
			c := unanswered.dial(t)
			go func() { hungry(c) }() // until nothing more fits
		}
		eventually(t, "nothing moves any more", b.stands("s0", "s1"))
		during := best(func() time.Duration { return e.p99(t, asks) })
		t.Logf("p99 of %d: %v alone, %v beside %d slow peers (%.1f times)", asks, before, during, 2*slow, float64(during)/float64(before))
		unnoticed(t, before, during)
		// Between attempts to hand those flows off, which become fewer, it has nothing to do.
		eventually(t, "the process rests", func() error {
			cpu, began := b.cpu(), time.Now()
			time.Sleep(500 * time.Millisecond)
			if busy := b.cpu() - cpu; busy > time.Since(began)/4 {
				return fmt.Errorf("with flows that stand still the process computed %v in %v", busy, time.Since(began))
			}
			return nil
		})
	})
}

// stands checks that the flows of services exist and do not move.
func (b *baton) stands(services ...string) func() error {
	moved := map[string]uint64{}
	return func() error {
		now := map[string]uint64{}
		for _, v := range b.flows() {
			if slices.Contains(services, v.Service) {
				now[v.Service] += v.BytesToBackend + v.BytesToClient
			}
		}
		before := moved
		moved = now
		for _, s := range services {
			if now[s] == 0 || now[s] != before[s] {
				return fmt.Errorf("%s: %d bytes, then %d", s, before[s], now[s])
			}
		}
		return nil
	}
}

// manyServices is a file with n services beside that of the world, all different
// from round to round.
func (w world) manyServices(n, round int) string {
	var b strings.Builder
	b.WriteString(w.service(nil))
	for i := range n {
		vip := netip.AddrPortFrom(w.vip.Addr(), uint16(1000+i))
		fmt.Fprintf(&b, "  - name: s%d\n    frontends: [\"tcp://%s\"]\n    backends:\n", i, vip)
		for k := range 2 {
			fmt.Fprintf(&b, "      - {address: %q, weight: %d}\n", netip.AddrPortFrom(w.addr(w.Backends[0]), uint16(9000+k)), 1+(round+k)%7)
		}
	}
	return b.String()
}

// R6: a few hundred services are rewritten over and over; the data path does not
// notice. The soak test does it with ten thousand.
func TestReloadsBesideTraffic(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		before, during, rounds := w.beside(t, 300, 0)
		t.Logf("p99 %v alone, %v beside %d reloads of 300 services", before, during, rounds)
		unnoticed(t, before, during)
	})
}

// TestSoakReloads is R6 in full: 10,000 services re-synchronised every second.
func TestSoakReloads(t *testing.T) {
	soak(t)
	bothFamilies(t, 1, func(t *testing.T, w world) {
		before, during, rounds := w.beside(t, 10_000, time.Second)
		t.Logf("p99 %v alone, %v beside %d reloads of 10,000 services, one a second", before, during, rounds)
		unnoticed(t, before, during)
	})
}

// beside measures the p99 of echoes alone, then while the file is rewritten again
// and again, at most once in each interval.
func (w world) beside(t *testing.T, services int, every time.Duration) (before, during time.Duration, rounds int) {
	t.Helper()
	const asks = 1000
	w.serveNamed()
	b := start(t, w.Balancer, w.manyServices(services, 0))
	e := w.echoing(t, 20)
	before = best(func() time.Duration { return e.p99(t, asks) })
	done, stopped := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { stopped <- n }()
		for ; ; n++ {
			began := time.Now()
			loads := b.logged("configuration loaded")
			b.configure(w.manyServices(services, n+1))
			for b.logged("configuration loaded") == loads || time.Since(began) < every {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		}
	}()
	stop := sync.OnceValue(func() int { close(done); return <-stopped })
	defer stop()
	// Each measurement spans whole reloads.
	for range 3 {
		until := b.logged("configuration loaded") + 2
		worst := time.Duration(0)
		for b.logged("configuration loaded") < until {
			worst = max(worst, e.p99(t, asks))
		}
		if during == 0 || worst < during {
			during = worst
		}
	}
	rounds = stop()
	if b.logged("level=ERROR") > 0 {
		t.Errorf("a reload failed: %v", errors.New(b.log.String()))
	}
	return before, during, rounds
}
