package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// C3: the balancer restarts while a client streams: same backend, same source port.
func TestUDPRestart(t *testing.T) {
	everyPath(t, 3, func(t *testing.T, w world) {
		var servers []*udpServer
		for i, h := range w.Backends {
			servers = append(servers, serveUDP(t, h, w.backend(i), named(h.Name())))
		}
		b := start(t, w.Balancer, w.udpService(nil))
		var clients []net.Conn
		var names []string
		for range 12 {
			c := w.udp(t, w.vip)
			got, err := exchange(c, []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			clients, names = append(clients, c), append(names, string(got))
		}
		w.carriedUDP(b, clients...)
		if err := b.stop(syscall.SIGTERM); err != nil {
			t.Fatalf("stop: %v", err)
		}
		again := launchIn(t, w.Balancer, b.dir, w.udpService(nil))
		again.waitLog("msg=serving")
		for i, c := range clients {
			eventually(t, "the client is served again", func() error {
				got, err := try(c)
				if err == nil && string(got) != names[i] {
					t.Errorf("client %d was at %q, is now at %q", i, names[i], got)
				}
				return err
			})
		}
		ports := 0
		for _, s := range servers {
			ports += s.senders()
		}
		if ports != len(clients) {
			t.Errorf("the backends saw %d source addresses from %d clients", ports, len(clients))
		}
	})
}

// C3 after a crash: what is known of sessions is at most five seconds old.
func TestUDPCrash(t *testing.T) {
	const clients = 12
	bothPaths(t, 3, func(t *testing.T, w world) {
		var servers []*udpServer
		for i, h := range w.Backends {
			servers = append(servers, serveUDP(t, h, w.backend(i), named(h.Name())))
		}
		b := start(t, w.Balancer, w.udpService(nil))
		var conns []net.Conn
		var names []string
		for range clients {
			c := w.udp(t, w.vip)
			got, err := exchange(c, []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			conns, names = append(conns, c), append(names, string(got))
		}
		ids := make(map[string]string)
		for _, v := range b.wantFlows(clients) {
			ids[v.Client.String()] = v.ID.String()
		}
		w.carriedUDP(b, conns...)
		eventually(t, "the sessions are written down", func() error {
			text, _ := os.ReadFile(filepath.Join(b.dir, "udp-sessions.json"))
			if n := strings.Count(string(text), `"backend":`); n != clients {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
		_ = b.stop(syscall.SIGKILL)
		again := launchIn(t, w.Balancer, b.dir, w.udpService(nil))
		again.waitServing()
		for i, c := range conns {
			eventually(t, "the client is served again", func() error {
				got, err := try(c)
				if err == nil && string(got) != names[i] {
					t.Errorf("client %d was at %q, is now at %q", i, names[i], got)
				}
				return err
			})
		}
		ports := 0
		for _, s := range servers {
			ports += s.senders()
		}
		if ports != clients {
			t.Errorf("the backends saw %d source addresses from %d clients", ports, clients)
		}
		for _, v := range again.wantFlows(clients) {
			if ids[v.Client.String()] != v.ID.String() {
				t.Errorf("%s was flow %s, is flow %s", v.Client, ids[v.Client.String()], v.ID)
			}
		}
	})
}

// A client that streams over a restart is at the same backend before and after,
// from the same port, though its datagrams come while the frontend opens.
func TestUDPRestartInAStream(t *testing.T) {
	everyPath(t, 3, func(t *testing.T, w world) {
		var servers []*udpServer
		for i, h := range w.Backends {
			servers = append(servers, serveUDP(t, h, w.backend(i), func([]byte) []byte { return nil }))
		}
		b := start(t, w.Balancer, w.udpService(nil))
		stop := make(chan struct{})
		done := make(chan struct{})
		const clients = 8
		var conns []net.Conn
		for range clients {
			conns = append(conns, w.udp(t, w.vip))
		}
		go func() {
			defer close(done)
			for {
				for _, c := range conns {
					_, _ = c.Write([]byte("x"))
				}
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
			}
		}()
		for range 3 {
			w.carriedUDP(b, conns...)
			if err := b.stop(syscall.SIGTERM); err != nil {
				t.Fatalf("stop: %v", err)
			}
			b = launchIn(t, w.Balancer, b.dir, w.udpService(nil))
			b.waitServing()
		}
		w.carriedUDP(b, conns...)
		close(stop)
		<-done
		ports := 0
		for _, s := range servers {
			ports += s.senders()
		}
		if ports != clients {
			t.Errorf("the backends saw %d source addresses from %d clients", ports, clients)
		}
	})
}

// A stop does not wait for UDP, whose sessions have no end of their own.
func TestUDPStop(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		serveUDP(t, w.Backends[0], w.backend(0), echo)
		b := start(t, w.Balancer, w.udpService(nil, "drainTimeout: 1h"), "--flows-on-exit", "drain")
		c := w.udp(t, w.vip)
		if _, err := exchange(c, []byte("x")); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := b.stop(syscall.SIGTERM); err != nil {
			t.Fatalf("stop: %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		b.noRoutes(w)
	})
}
