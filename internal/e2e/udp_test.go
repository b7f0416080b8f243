package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// U1: a balancer with several addresses on one leg answers from the one that was asked.
func TestUDPAnswerAddress(t *testing.T) {
	everyPath(t, 1, func(t *testing.T, w world) {
		serveUDP(t, w.Backends[0], w.backend(0), echo)
		other := netip.MustParseAddrPort("10.96.0.11:80")
		wild := "0.0.0.0:81"
		if w.v6 {
			other, wild = netip.MustParseAddrPort("[fd96::11]:80"), "[::]:81"
		}
		start(t, w.Balancer, w.udpService(nil)+fmt.Sprintf(
			"  - name: wild\n    frontends: [\"udp://%s\", \"udp://%s\"]\n    backends: [%q]\n", other, wild, w.backend(0)))
		own := netip.AddrPortFrom(w.addr(w.Balancer), 81)
		second := netip.AddrPortFrom(w.BackendLinks[0].A.IP4, 81)
		if w.v6 {
			second = netip.AddrPortFrom(w.BackendLinks[0].A.IP6, 81)
		}
		for _, to := range []netip.AddrPort{w.vip, other, own, second} {
			// A connected socket takes answers from the address it asked only.
			got, err := exchange(w.udp(t, to), []byte("who"))
			if string(got) != "who" || err != nil {
				t.Errorf("asked %s: got %q, %v", to, got, err)
			}
		}
	})
}

// U2: a client that only sends keeps one source port, and loses nothing at the
// edge of the timeout.
func TestUDPOneWay(t *testing.T) {
	everyPath(t, 2, func(t *testing.T, w world) {
		s := []*udpServer{
			serveUDP(t, w.Backends[0], w.backend(0), func([]byte) []byte { return nil }),
			serveUDP(t, w.Backends[1], w.backend(1), func([]byte) []byte { return nil }),
		}
		edge := w
		edge.vip = netip.AddrPortFrom(w.vip.Addr(), 81)
		b := start(t, w.Balancer, w.udpService(nil, "timeouts: {udpIdle: 2s}")+
			edge.another("edge", "udp", 0, "timeouts: {udpIdle: 400ms}"))
		c := w.udp(t, w.vip)
		const n = 60
		for i := range n {
			fmt.Fprintf(c, "metric:%d|c", i)
			time.Sleep(time.Duration(20+10*(i%12)) * time.Millisecond) // up to 130 ms
		}
		eventually(t, "everything has come", func() error {
			if got := s[0].got.Load() + s[1].got.Load(); got != n {
				return fmt.Errorf("%d of %d datagrams have come", got, n)
			}
			return nil
		})
		w.wantPath(t, b.flows()[0])
		if ports := s[0].senders() + s[1].senders(); ports != 1 {
			t.Errorf("the backends saw %d source addresses, want 1", ports)
		}
		// Now with pauses around the timeout: a new port is right, a loss is not.
		c = w.udp(t, edge.vip)
		for i := range 20 {
			fmt.Fprintf(c, "edge:%d|c", i)
			time.Sleep(time.Duration(380+2*i) * time.Millisecond)
		}
		eventually(t, "everything has come", func() error {
			if got := s[0].got.Load() + s[1].got.Load(); got != n+20 {
				return fmt.Errorf("%d of %d datagrams have come", got, n+20)
			}
			return nil
		})
	})
}

// U3: bursts of mixed sizes come byte-exact and once, both ways.
func TestUDPBursts(t *testing.T) {
	everyPath(t, 1, func(t *testing.T, w world) {
		serveUDP(t, w.Backends[0], w.backend(0), echo)
		b := start(t, w.Balancer, w.udpService(nil))
		c := w.udp(t, w.vip)
		w.meets(t, b, c)
		_ = c.(*net.UDPConn).SetReadBuffer(8 << 20)
		rng := rand.New(rand.NewPCG(1, 2))
		for burst := range 20 {
			sent := make(map[uint32][]byte)
			for i := range 40 {
				b := make([]byte, 8+rng.IntN(3)*rng.IntN(700)) // runs of equal sizes among others
				for j := range b {
					b[j] = byte(rng.Uint32())
				}
				id := uint32(burst*1000 + i)
				binary.BigEndian.PutUint32(b, id)
				sent[id] = b
				if _, err := c.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			for len(sent) > 0 {
				got, err := receive(c)
				if err != nil {
					t.Fatalf("burst %d: %d answers are missing: %v", burst, len(sent), err)
				}
				id := binary.BigEndian.Uint32(got)
				if want, ok := sent[id]; !ok || !bytes.Equal(got, want) {
					t.Fatalf("burst %d: datagram %d is not what was sent, or came twice", burst, id)
				}
				delete(sent, id)
			}
		}
	})
}

// U4, U8: every size, exact both ways; what is larger than the MTU is fragmented.
func TestUDPSizes(t *testing.T) {
	bothPaths(t, 1, func(t *testing.T, w world) {
		serveUDP(t, w.Backends[0], w.backend(0), echo)
		b := start(t, w.Balancer, w.udpService(nil))
		c := w.udp(t, w.vip)
		w.meets(t, b, c)
		sizes := []int{0, 1, 1024, 1472, 1473, 4000, 8192, 8193, 65507}
		if w.v6 {
			sizes = append(sizes, 65527)
		}
		want, total := 1, len(greeting)
		for _, n := range sizes {
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(i * 7)
			}
			got, err := exchange(c, data)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes: %d came back, %v", n, len(got), err)
			}
			want, total = want+1, total+n
		}
		eventually(t, "all is counted", func() error {
			v := b.flows()[0]
			if v.BytesToBackend != uint64(total) || v.BytesToClient != uint64(total) || v.PacketsToBackend != uint64(want) {
				return fmt.Errorf("counted %d and %d bytes in %d datagrams, want %d in %d", v.BytesToBackend, v.BytesToClient, v.PacketsToBackend, total, want)
			}
			return nil
		})
	})
}

// U5: a backend answers with ICMP port unreachable: another one gets the
// datagrams, and not one is lost but what the dead one was sent.
func TestUDPBackendRefuses(t *testing.T) {
	everyPath(t, 2, func(t *testing.T, w world) {
		serveUDP(t, w.Backends[1], w.backend(1), named("live"))
		b := start(t, w.Balancer, w.udpService(nil))
		for i := range 6 {
			c := w.udp(t, w.vip)
			eventually(t, "the live backend answers", func() error {
				if _, err := c.Write([]byte("x")); err != nil {
					return err
				}
				_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				buf := make([]byte, 100)
				n, err := c.Read(buf)
				if err == nil && !strings.HasPrefix(string(buf[:n]), "live") {
					err = fmt.Errorf("client %d got %q", i, buf[:n])
				}
				return err
			})
		}
		for _, row := range b.backends() {
			if dead := row.Backend == w.backend(0).String(); dead != (row.Failures > 0) {
				t.Errorf("%s has %d failures", row.Backend, row.Failures)
			}
		}
	})
}

// U6: a flood of one-shot queries meets a cap; the oldest go, another service
// does not notice.
func TestUDPOneShotFlood(t *testing.T) {
	const queries = 1500
	everyPath(t, 1, func(t *testing.T, w world) {
		serveUDP(t, w.Backends[0], w.backend(0), echo)
		second := w
		second.vip = netip.AddrPortFrom(w.vip.Addr(), 81)
		b := start(t, w.Balancer, w.udpService(nil, "limits: {udpSessions: 500}")+second.another("other", "udp", 0))
		other := w.udp(t, second.vip)
		w.meets(t, b, other)
		for i := range queries {
			c, err := w.Client.Dial("udp", w.vip)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := exchange(c, []byte("query")); err != nil || string(got) != "query" {
				t.Fatalf("query %d: %q, %v", i, got, err)
			}
			c.Close()
		}
		eventually(t, "old sessions have made room", func() error {
			live := 0
			for _, v := range b.flows() {
				if v.Service == w.called("web") {
					live++
				}
			}
			if live > 500 {
				return fmt.Errorf("%d sessions are live, the limit is 500", live)
			}
			return nil
		})
		if got, err := exchange(other, []byte("again")); err != nil || string(got) != "again" {
			t.Errorf("the other service: %q, %v", got, err)
		}
		evicted := 0
		for _, v := range b.ended() {
			if v.Service == "other" {
				t.Errorf("a session of the other service has ended: %+v", v)
			}
			if v.Reason == flow.ReasonEvicted {
				evicted++
			}
		}
		if evicted == 0 {
			t.Error("no session says that it was evicted")
		}
	})
}

// A4 for UDP: a client address stays at its backend, also from new ports.
func TestUDPAffinity(t *testing.T) {
	everyPath(t, 3, func(t *testing.T, w world) {
		for i, h := range w.Backends {
			serveUDP(t, h, w.backend(i), named(h.Name()))
		}
		b := start(t, w.Balancer, w.udpService(nil, "affinity: {by: client-ip, timeout: 1h}"))
		first, err := exchange(w.udp(t, w.vip), []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			if got, err := exchange(w.udp(t, w.vip), []byte("x")); string(got) != string(first) || err != nil {
				t.Fatalf("first %q, now %q, %v", first, got, err)
			}
		}
		// A1: it may not take new sessions any more.
		pinned := b.wantFlows(9)[0].Backend
		var list []string
		for i := range w.Backends {
			state := "ready"
			if w.backend(i) == pinned {
				state = "drain"
			}
			list = append(list, fmt.Sprintf("{address: %q, state: %s}", w.backend(i), state))
		}
		old := w.udp(t, w.vip)
		w.meets(t, b, old)
		b.reload(w.udpService(list, "affinity: {by: client-ip, timeout: 1h}"))
		got, err := exchange(w.udp(t, w.vip), []byte("x"))
		if err != nil || string(got) == string(first) {
			t.Errorf("a new session got %q, %v", got, err)
		}
		// A3: the old session stays.
		if got, err := exchange(old, []byte("x")); err != nil || string(got) != string(first) {
			t.Errorf("the old session got %q, %v", got, err)
		}
	})
}

// C1, C2: backends come and go under one and the same client socket.
func TestUDPBackendsComeAndGo(t *testing.T) {
	everyPath(t, 2, func(t *testing.T, w world) {
		a := serveUDP(t, w.Backends[0], w.backend(0), named("a"))
		serveUDP(t, w.Backends[1], w.backend(1), named("b"))
		only := func(i int) []string { return []string{fmt.Sprintf("%q", w.backend(i))} }
		bt := start(t, w.Balancer, w.udpService([]string{}))
		c := w.udp(t, w.vip)
		if _, err := exchange(c, []byte("x")); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("without backends: %v, want a refusal", err)
		}
		bt.configure(w.udpService(only(0)))
		eventually(t, "the same socket is served", func() error {
			got, err := try(c)
			if err == nil && !strings.HasPrefix(string(got), "a ") {
				err = fmt.Errorf("got %q", got)
			}
			return err
		})
		// The backend is exchanged for another while the client never stops.
		bt.configure(w.udpService(only(1)))
		eventually(t, "the new backend answers", func() error {
			got, err := try(c)
			if err == nil && !strings.HasPrefix(string(got), "b ") {
				err = fmt.Errorf("got %q", got)
			}
			return err
		})
		w.carriedUDP(bt, c)
		before := a.got.Load()
		for range 50 {
			_, _ = try(c)
		}
		if n := a.got.Load() - before; n != 0 {
			t.Errorf("%d datagrams reached the removed backend", n)
		}
		bt.configure(w.udpService([]string{}))
		eventually(t, "the client is refused", func() error {
			if _, err := try(c); !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("got %v, want a refusal", err)
			}
			return nil
		})
	})
}

// A client whose port has closed ends its session by its ICMP error.
func TestUDPClientGone(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		release := make(chan struct{})
		serveUDP(t, w.Backends[0], w.backend(0), func(b []byte) []byte { <-release; return b })
		b := start(t, w.Balancer, w.udpService(nil))
		c, err := w.Client.Dial("udp", w.vip)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "question")
		eventually(t, "the session is there", func() error {
			if len(b.flows()) != 1 {
				return errors.New("it is not")
			}
			return nil
		})
		addr := c.LocalAddr()
		c.Close()
		close(release)
		wantEnd(t, b.endedOf(addr), flow.ByClient, flow.ReasonNetworkError)
	})
}

// Many clients at once, each gets its own answers.
func TestUDPManyClients(t *testing.T) {
	everyPath(t, 3, func(t *testing.T, w world) {
		for i := range w.Backends {
			serveUDP(t, w.Backends[i], w.backend(i), echo)
		}
		start(t, w.Balancer, w.udpService(nil))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 200 {
			c := w.udp(t, w.vip)
			wg.Go(func() {
				for j := range 50 {
					want := fmt.Sprintf("client %d question %d", i, j)
					got, err := exchange(c, []byte(want))
					if string(got) != want || err != nil {
						t.Errorf("want %q, got %q, %v", want, got, err)
						return
					}
					if ctx.Err() != nil {
						return
					}
				}
			})
		}
		wg.Wait()
	})
}
