package e2e

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// R3: under a load of connections none fails, whatever answers at the VIP.
func TestUpgradeUnderLoad(t *testing.T) {
	const nodePort = "node port"
	for _, mode := range []string{"auto", "sklookup", "anyip", "bind", nodePort} {
		t.Run(mode, func(t *testing.T) {
			bothFamilies(t, 2, func(t *testing.T, w world) {
				w.serveNamed()
				if mode == "bind" || mode == nodePort {
					w.vip = netip.AddrPortFrom(w.addr(w.Balancer), 80)
				}
				services := "capture: " + mode + "\n" + w.service(nil)
				if mode == nodePort {
					any := netip.AddrPortFrom(netip.IPv4Unspecified(), 80)
					if w.v6 {
						any = netip.AddrPortFrom(netip.IPv6Unspecified(), 80)
					}
					services = strings.ReplaceAll(w.service(nil), w.vip.String(), any.String())
				}
				b := start(t, w.Balancer, services)
				kept, _ := w.named(t)
				l := w.load(t, 4)
				for range 3 {
					l.more(t, 100)
					next := b.upgrade(w, services)
					l.more(t, 100)
					kept.works(t)
					kept.ends(t) // its process ends with it
					b.exits(10 * time.Second)
					b = next
					kept, _ = w.named(t)
				}
				l.end(t)
				kept.works(t)
				kept.ends(t)
				if err := b.stop(syscall.SIGTERM); err != nil {
					t.Errorf("stop: %v", err)
				}
				b.gone(w)
			})
		})
	}
}

// The flows of the old process can be seen and ended there, and have --exit-timeout.
func TestUpgradeDrains(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = inUserspace
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil), "--exit-timeout", "4s")
		c, _ := w.named(t)
		next := b.upgrade(w, w.service(nil))
		c.works(t)
		old := b.upgraded()
		if n := len(old.flows()); n != 1 {
			t.Errorf("the old process has %d flows", n)
		}
		if n := len(next.flows()); n != 0 {
			t.Errorf("the new process has %d flows", n)
		}
		if page, err := old.text("/readyz"); err == nil {
			t.Errorf("the old process says that it is ready: %s", page)
		}
		if page, err := next.text("/readyz"); err != nil {
			t.Errorf("the new process is not ready: %s, %v", page, err)
		}
		used := b.cpu()
		<-time.After(time.Second)
		if used = b.cpu() - used; used > 300*time.Millisecond {
			t.Errorf("the old process used %v in a second in which it had nothing to do", used)
		}
		c.wasReset(t)
		b.exits(10 * time.Second)
		b.waitLog("msg=left")
		w.who(t)
		if left, _ := filepath.Glob(b.socket() + ".*"); len(left) > 0 {
			t.Errorf("sockets are left: %v", left)
		}
	})
}

// What is no longer served keeps its route until the last connection has ended.
func TestUpgradeToAnotherFile(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil))
		c, _ := w.named(t)
		moved := w
		moved.vip = netip.AddrPortFrom(w.vip.Addr().Next(), w.vip.Port())
		b.upgrade(w, moved.service(nil))
		moved.who(t)
		if _, err := w.Client.AskName(w.vip); err == nil {
			t.Error("the VIP that is no longer served answers")
		}
		c.works(t)
		if routes := vipRoutes(t, w.Balancer); len(routes) != 2 {
			t.Errorf("routes: %v", routes)
		}
		c.ends(t)
		b.exits(10 * time.Second)
		eventually(t, "the route goes with the last connection", func() error {
			if routes := vipRoutes(t, w.Balancer); len(routes) != 1 {
				return fmt.Errorf("routes: %v", routes)
			}
			return nil
		})
	})
}

// An upgrade that fails says why, and leaves everything as it was.
func TestUpgradeFails(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		good := w.service(nil)
		b := start(t, w.Balancer, good)
		kept, _ := w.named(t)
		l := w.load(t, 2)
		taken := netip.AddrPortFrom(w.addr(w.Balancer), 999)
		w.Balancer.Serve(999, testnet.Echo)
		for _, tc := range []struct {
			name, services string
			flags          []string
			says           string
		}{
			{"a port is taken", strings.Replace(good, w.vip.String(), taken.String(), 1), nil, "in use"},
			{"a file with a fault", strings.Replace(good, "backends", "backens", 1), nil, "backens"},
			{"another state directory", good, []string{"--state-dir", t.TempDir()}, "name the same --state-dir"},
		} {
			next := b.successor(w.Balancer, tc.services, tc.flags...)
			next.run()
			if err := next.cmd.Wait(); err == nil || !strings.Contains(next.log.String(), tc.says) {
				t.Errorf("%s: %v\n%s", tc.name, err, next.log)
			}
			if strings.Contains(next.log.String(), "msg=serving") {
				t.Errorf("%s: it has served\n%s", tc.name, next.log)
			}
		}
		l.more(t, 50)
		kept.works(t)
		b.cliWorks(w)
		next := b.upgrade(w, good) // and then it works
		l.more(t, 50)
		l.end(t)
		next.cliWorks(w)
		kept.ends(t)
		b.exits(10 * time.Second)
	})
}

// Killed in the middle of taking over: the old process goes on.
func TestUpgradeKilled(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		good := w.service(nil)
		b := start(t, w.Balancer, good)
		kept, _ := w.named(t)
		for delay := range 8 {
			next := b.successor(w.Balancer, good)
			next.run()
			time.Sleep(time.Duration(10*delay) * time.Millisecond) // anywhere in its start, and before its last step
			_ = next.stop(syscall.SIGKILL)
			handedOver := func() bool { return strings.Contains(b.log.String(), "handed over") }
			eventually(t, "the old process knows what it is", func() error {
				if _, err := b.text("/readyz"); err != nil && !handedOver() {
					return err
				}
				return nil
			})
			if handedOver() { // that was too late
				kept.works(t)
				return
			}
			kept.works(t)
			w.who(t)
		}
		eventually(t, "the instance is found", func() error {
			if _, err := b.text("/readyz"); err != nil {
				return err
			}
			return nil
		})
		b.cliWorks(w)
	})
}

// With nobody to take over from, it starts.
func TestUpgradeFromNothing(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil), "--upgrade")
		w.who(t)
		if err := b.stop(syscall.SIGTERM); err != nil {
			t.Errorf("stop: %v", err)
		}
		b.gone(w)
	})
}

// C3 and R3: UDP clients that stream over upgrades lose no datagram, stay at their
// backends, and these see the same ports; what backends send unasked comes too.
func TestUpgradeOfUDP(t *testing.T) {
	const clients = 12
	bothFamilies(t, 3, func(t *testing.T, w world) {
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
		stop := make(chan struct{})
		var running sync.WaitGroup
		var asked, lost, moved atomic.Int64
		for i, c := range conns {
			running.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					asked.Add(1)
					got, err := exchange(c, []byte("x")) // late is not lost
					if err != nil {
						lost.Add(1)
					} else if string(got) != names[i] {
						moved.Add(1)
					}
				}
			})
		}
		for range 3 {
			from := asked.Load()
			eventually(t, "clients are served", func() error {
				if n := asked.Load() - from; n < 200 {
					return fmt.Errorf("%d datagrams", n)
				}
				return nil
			})
			next := b.upgrade(w, w.udpService(nil))
			b.exits(10 * time.Second)
			b = next
		}
		close(stop)
		running.Wait()
		if lost.Load() > 0 || moved.Load() > 0 {
			t.Errorf("of %d datagrams %d were not answered, %d by another backend", asked.Load(), lost.Load(), moved.Load())
		}
		ports := 0
		for _, s := range servers {
			ports += s.senders()
		}
		if ports != clients {
			t.Errorf("the backends saw %d source addresses from %d clients", ports, clients)
		}
		for _, v := range b.wantFlows(clients) {
			if ids[v.Client.String()] != v.ID.String() {
				t.Errorf("%s was flow %s, is flow %s", v.Client, ids[v.Client.String()], v.ID)
			}
		}
	})
}

// What `baton drain` has drained stays so, and metrics and health stay where they
// are.
func TestUpgradeKeepsDrains(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil))
		out, err := w.Balancer.Command(t.Context(), batonPath, "drain", "web/"+w.backend(0).String(), "--socket", b.socket()).CombinedOutput()
		if err != nil {
			t.Fatalf("drain: %v: %s", err, out)
		}
		next := b.upgrade(w, w.service(nil))
		b.exits(10 * time.Second)
		for range 10 {
			if name := w.who(t); name != w.Backends[1].Name() {
				t.Errorf("%s is drained and gets a connection", name)
			}
		}
		for _, row := range next.backends() {
			if row.Backend == w.backend(0).String() && row.State != "drain" {
				t.Errorf("%+v", row)
			}
		}
	})
}

// Metrics and health on TCP are answered all the time.
func TestUpgradeHTTPStays(t *testing.T) {
	w := world{Star: testnet.NewStar(t, 1), vip: netip.MustParseAddrPort("10.96.0.10:80")}
	w.serveNamed()
	at := netip.AddrPortFrom(w.Balancer.IP4, 10249)
	flag := func(b *baton) *baton {
		b.replace(`http: ""`, fmt.Sprintf("http: %q", at))
		b.run()
		b.waitServing()
		return b
	}
	b := flag(prepare(t, w.Balancer, t.TempDir(), w.service(nil)))
	ask := func() error {
		c, err := w.Client.Dial("tcp", at)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		fmt.Fprintf(c, "GET /readyz HTTP/1.0\r\n\r\n")
		if text, err := io.ReadAll(c); err != nil || !strings.Contains(string(text), "200 OK") {
			return fmt.Errorf("%q, %v", text, err)
		}
		return nil
	}
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := ask(); err != nil {
				done <- fmt.Errorf("question %d: %w", n, err)
				return
			}
		}
	}()
	for range 2 {
		next := flag(prepare(t, w.Balancer, b.dir, w.service(nil), "--upgrade"))
		b.exits(10 * time.Second)
		b = next
	}
	close(stop)
	if err := <-done; err != nil {
		t.Errorf("health on TCP: %v", err)
	}
}
