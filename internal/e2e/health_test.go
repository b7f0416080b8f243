package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// becomes waits until a backend's health is what is wanted.
func (b *baton) becomes(addr, health string) {
	b.t.Helper()
	testnet.Eventually(b.t, 10*time.Second, addr+" is "+health, func() error {
		if r := b.row(addr); r.Health != health {
			return fmt.Errorf("it is %s", r.Health)
		}
		return nil
	})
}

// A probed backend that dies gets no more connections, comes back when it
// answers, and when all are dead the list of services says what is done.
func TestProbedBackends(t *testing.T) {
	for _, health := range []string{
		"health: {probe: tcp, interval: 50ms, timeout: 40ms, rise: 2, fall: 2}",
		"health: {probe: http, port: 8081, path: /ok, expect: fine, interval: 50ms, timeout: 40ms}",
		"health: {probe: udp, port: 8081, send: ping, expect: ping, interval: 50ms, timeout: 40ms}",
	} {
		bothFamilies(t, 3, func(t *testing.T, w world) {
			serve := func(i int) (kill func()) {
				h := w.Backends[i]
				work := h.Serve(8080, testnet.Named(h.Name()))
				answer := h.Serve(8081, func(c net.Conn) {
					_, _ = c.Read(make([]byte, 4096))
					fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\nfine")
				})
				pong := serveUDP(t, h, netip.AddrPortFrom(w.addr(h), 8081), echo)
				return func() { work.Kill(); answer.Kill(); pong.close() }
			}
			var kill []func()
			for i := range w.Backends {
				kill = append(kill, serve(i))
			}
			b := start(t, w.Balancer, w.service(nil, health))
			kill[1]()
			b.becomes(w.backend(1).String(), "unhealthy")
			before := b.row(w.backend(1).String()).Failures
			if got := w.spread(t, 10); got[1] != 0 {
				t.Errorf("connections went to %v", got)
			}
			if n := b.row(w.backend(1).String()).Failures; n != before {
				t.Errorf("%d attempts to reach an unhealthy backend", n-before)
			}
			kill[1] = serve(1)
			b.becomes(w.backend(1).String(), "healthy")
			if got := w.spread(t, 9); got[1] != 3 {
				t.Errorf("connections went to %v once it was back", got)
			}
			for i := range kill {
				kill[i]()
			}
			testnet.Eventually(t, 10*time.Second, "the service says so", func() error {
				if r := b.frontend(w.vip); r.Status != "ready" || r.Reason != "all backends are unhealthy: using them all" {
					return fmt.Errorf("%+v", r)
				}
				return nil
			})
			w.Backends[2].Serve(8080, testnet.Named(w.Backends[2].Name()))
			if name := w.who(t); name != w.Backends[2].Name() {
				t.Errorf("%s answered", name)
			}
		})
	}
}

// Without a probe a dead backend is left alone after a few failures, and tried
// again later. No client notices.
func TestEjectedBackend(t *testing.T) {
	bothFamilies(t, 3, func(t *testing.T, w world) {
		w.Backends[0].Serve(8080, testnet.Named(w.Backends[0].Name()))
		w.Backends[2].Serve(8080, testnet.Named(w.Backends[2].Name()))
		b := start(t, w.Balancer, w.service(nil))
		dead := w.backend(1).String()
		if got := w.spread(t, 60); got[1] != 0 {
			t.Errorf("connections went to %v", got)
		}
		if r := b.row(dead); r.Failures < 5 || r.Failures > 10 {
			t.Errorf("%d of 60 connections tried a dead backend first", r.Failures)
		}
		b.waitLog(`msg="backend is ejected" svc=web backend=` + dead)
		w.Backends[1].Serve(8080, testnet.Named(w.Backends[1].Name()))
		b.becomes(dead, "healthy")
		testnet.Eventually(t, 10*time.Second, "it serves again", func() error {
			if got := w.spread(t, 6); got[1] == 0 {
				return fmt.Errorf("connections went to %v", got)
			}
			return nil
		})
	})
}
