package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// portWorld is a node with health check node ports, and somebody who asks them.
type portWorld struct {
	t     *testing.T
	node  *testnet.Host
	asker *testnet.Host
	store *store.Store
	src   *store.Source
	ports *NodePorts
	from  *store.Snapshot
}

func newPortWorld(t *testing.T) *portWorld {
	n := testnet.New(t)
	w := &portWorld{t: t, node: n.Host("node"), asker: n.Host("balancer"), store: store.New(store.Options{})}
	n.Connect(w.node, w.asker)
	w.src, w.from = w.store.Source("test"), w.store.Snapshot()
	w.ports = NewNodePorts(NodePortOptions{})
	t.Cleanup(func() {
		if err := w.ports.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// program applies the services, on the node.
func (w *portWorld) program(services ...lb.Service) (failures []store.Failure) {
	w.t.Helper()
	if err := w.src.Replace(services); err != nil {
		w.t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range []*store.Snapshot{w.from, w.store.Snapshot()} {
		for svc := range s.Services() {
			names[svc.Name] = true
		}
	}
	c := store.Change{From: w.from, To: w.store.Snapshot()}
	for name := range names {
		c.Services = append(c.Services, name)
	}
	w.node.Do(func() { failures = w.ports.Program(context.Background(), c) })
	w.from = c.To
	return failures
}

// ask is the status and the count of backends that a port answers.
func (w *portWorld) ask(to netip.Addr, port uint16) (string, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return w.asker.DialContext(ctx, "tcp", netip.AddrPort{}, netip.AddrPortFrom(to, port))
		},
	}}
	resp, err := client.Get("http://node/healthz")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var body struct{ LocalEndpoints int }
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %d", resp.StatusCode, body.LocalEndpoints), nil
}

// want checks what a port answers at both families.
func (w *portWorld) want(port uint16, answer string) {
	w.t.Helper()
	for _, to := range []netip.Addr{w.node.IP4, w.node.IP6} {
		if got, err := w.ask(to, port); got != answer || err != nil {
			w.t.Errorf("port %d at %s answers %q, %v; want %q", port, to, got, err, answer)
		}
	}
}

func (w *portWorld) closed(port uint16) {
	w.t.Helper()
	for _, to := range []netip.Addr{w.node.IP4, w.node.IP6} {
		if got, err := w.ask(to, port); !errors.Is(err, unix.ECONNREFUSED) {
			w.t.Errorf("port %d at %s answers %q, %v; want a refusal", port, to, got, err)
		}
	}
}

func portService(name string, n int, port uint16, backends ...lb.Backend) lb.Service {
	s := lb.Default(name)
	s.Frontends = []lb.Frontend{{FrontendKey: lb.FrontendKey{Proto: 6, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(n)}), 80)}}}
	s.Backends, s.HealthCheckNodePort = backends, port
	return s
}

func localBackend(n int) lb.Backend {
	return lb.Backend{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), 80), Weight: 1, Local: true}
}

// The port answers 200 while a backend on this node takes new flows, 503 when the
// last one has left, also when only terminating ones are there.
func TestNodePortAnswers(t *testing.T) {
	w := newPortWorld(t)
	far, leaving := localBackend(9), localBackend(3)
	far.Local, leaving.Terminating = false, true
	for _, c := range []struct {
		name     string
		backends []lb.Backend
		want     string
	}{
		{"two here", []lb.Backend{localBackend(1), localBackend(2), far}, "200 2"},
		{"one here", []lb.Backend{localBackend(1), far}, "200 1"},
		{"only elsewhere", []lb.Backend{far}, "503 0"},
		{"only a terminating one", []lb.Backend{leaving, far}, "503 0"},
		{"none at all", nil, "503 0"},
		{"back again", []lb.Backend{localBackend(1)}, "200 1"},
	} {
		if f := w.program(portService("web", 1, 30001, c.backends...)); len(f) > 0 {
			t.Fatalf("%s: %v", c.name, f)
		}
		w.want(30001, c.want)
	}
	w.program()
	w.closed(30001)
}

// The ports of one Service share a health check node port: it counts the pods of all of
// them, each once.
func TestNodePortShared(t *testing.T) {
	w := newPortWorld(t)
	at := func(n int, port uint16) lb.Backend {
		b := localBackend(n)
		b.Address = netip.AddrPortFrom(b.Address.Addr(), port)
		return b
	}
	v6 := localBackend(0)
	v6.Address = netip.MustParseAddrPort("[fd00::1]:80")
	part := func(name string, n int, backends ...lb.Backend) lb.Service {
		s := portService("shop/web:"+name, n, 30001, backends...)
		s.HealthCheckName = "shop/web"
		return s
	}
	for _, c := range []struct {
		name     string
		services []lb.Service
		want     string
	}{
		{"the first has none", []lb.Service{part("a", 1), part("b", 2, localBackend(1))}, "200 1"},
		{"one pod, two ports", []lb.Service{part("a", 1, at(1, 80)), part("b", 2, at(1, 443))}, "200 1"},
		{"one pod, two families", []lb.Service{part("a", 1, at(1, 80), v6), part("b", 2)}, "200 1"},
		{"two pods with a port each", []lb.Service{part("a", 1, at(1, 80)), part("b", 2, at(2, 443))}, "200 2"},
		{"one port is gone", []lb.Service{part("b", 2, at(2, 443))}, "200 1"},
		{"and its pods", []lb.Service{part("b", 2)}, "503 0"},
	} {
		if f := w.program(c.services...); len(f) > 0 {
			t.Fatalf("%s: %v", c.name, f)
		}
		w.want(30001, c.want)
	}
	if f := w.program(part("b", 2), portService("other", 3, 30001)); len(f) != 1 || f[0].Service != "other" {
		t.Errorf("somebody else's port: %v", f)
	}
	w.program()
	w.closed(30001)
}

// A port is bound once for each family, however often it is asked for; a service
// that moves to another port leaves the old one.
func TestNodePortBoundOnce(t *testing.T) {
	w := newPortWorld(t)
	for range 3 {
		if f := w.program(portService("web", 1, 30001, localBackend(1)), portService("api", 2, 30002, localBackend(2))); len(f) > 0 {
			t.Fatal(f)
		}
	}
	w.want(30001, "200 1")
	w.want(30002, "200 1")
	if f := w.program(portService("web", 1, 30003, localBackend(1)), portService("api", 2, 30002)); len(f) > 0 {
		t.Fatal(f)
	}
	w.closed(30001)
	w.want(30003, "200 1")
	w.want(30002, "503 0")
}

// A port that somebody else has is the service's failure; it is there once the
// other has gone, and the family that was free answers all the while.
func TestNodePortTaken(t *testing.T) {
	w := newPortWorld(t)
	other, err := w.node.Listen("tcp4", netip.AddrPortFrom(netip.IPv4Unspecified(), 30001))
	if err != nil {
		t.Fatal(err)
	}
	svc := portService("web", 1, 30001, localBackend(1))
	if f := w.program(svc); len(f) != 1 || !errors.Is(f[0].Err, unix.EADDRINUSE) || f[0].Service != "web" {
		t.Errorf("failures: %v", f)
	}
	if got, err := w.ask(w.node.IP6, 30001); got != "200 1" || err != nil {
		t.Errorf("IPv6 answers %q, %v", got, err)
	}
	other.Close()
	if f := w.program(svc); len(f) > 0 {
		t.Errorf("failures: %v", f)
	}
	w.want(30001, "200 1")
	if f := w.program(svc, portService("api", 2, 30001)); len(f) != 1 || f[0].Service == "" {
		t.Errorf("two services with one port: %v", f)
	}
}
