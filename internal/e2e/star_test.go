package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// world is a client, a balancer and some backends, seen through one address
// family.
type world struct {
	*testnet.Star
	v6      bool
	vip     netip.AddrPort // not configured anywhere: anyip
	offload string         // what services say of it: a line of the file, or nothing
	objects bool           // services are objects of Kubernetes, and their VIP a cluster IP
}

// bothFamilies runs a test over IPv4 and over IPv6.
func bothFamilies(t *testing.T, backends int, test func(t *testing.T, w world)) {
	families(t, "", "", backends, test)
}

// bothPaths runs a test over IPv4 and IPv6, with flows that stay in userspace and
// with flows that leave it before their first byte; and so that what is in a file
// comes from objects of Kubernetes, once on each path: all six side by side, and beside
// other tests.
func bothPaths(t *testing.T, backends int, test func(t *testing.T, w world)) {
	t.Parallel()
	together := func(t *testing.T, w world) { t.Parallel(); test(t, w) }
	families(t, "Userspace", inUserspace, backends, together)
	families(t, "Kernel", inKernel, backends, together)
	families(t, "Objects", "", backends, func(t *testing.T, w world) {
		w.objects, w.offload = true, inUserspace
		if w.v6 {
			w.offload = inKernel
		}
		together(t, w)
	})
}

// everyPath is bothPaths for what holds also where nothing is terminated.
func everyPath(t *testing.T, backends int, test func(t *testing.T, w world)) {
	bothPaths(t, backends, test)
	families(t, "Steered", steered, backends, func(t *testing.T, w world) { t.Parallel(); test(t, w) })
}

func families(t *testing.T, prefix, offload string, backends int, test func(t *testing.T, w world)) {
	for _, v6 := range []bool{false, true} {
		name, vip := "IPv4", "10.96.0.10:80"
		if v6 {
			name, vip = "IPv6", "[fd96::10]:80"
		}
		t.Run(prefix+name, func(t *testing.T) {
			star := testnet.NewStar(t, backends)
			test(t, world{Star: star, v6: v6, vip: netip.MustParseAddrPort(vip), offload: offload})
		})
	}
}

// addr is the address of a host in the family of the world.
func (w world) addr(h *testnet.Host) netip.Addr {
	if w.v6 {
		return h.IP6
	}
	return h.IP4
}

// backend is where backend i (from 0) serves.
func (w world) backend(i int) netip.AddrPort { return netip.AddrPortFrom(w.addr(w.Backends[i]), 8080) }

// service is the configuration of one service with the given backends (all when
// none are named) and further lines, each a key of the service.
func (w world) service(backends []string, more ...string) string {
	if backends == nil {
		for i := range w.Backends {
			backends = append(backends, fmt.Sprintf("%q", w.backend(i)))
		}
	}
	var b strings.Builder
	if w.objects {
		b.WriteString(asObjects)
	}
	fmt.Fprintf(&b, "services:\n  - name: web\n    frontends: [\"tcp://%s\"]\n    backends: [%s]\n", w.vip, strings.Join(backends, ", "))
	if w.offload != "" {
		more = append(slices.Clone(more), w.offload)
	}
	for _, line := range more {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	return b.String()
}

// another is one more service, at the world's VIP and with one of its backends.
func (w world) another(name, proto string, backend int, more ...string) string {
	all := strings.TrimPrefix(w.service([]string{fmt.Sprintf("%q", w.backend(backend))}, more...), asObjects)
	all = strings.Replace(all, "services:\n  - name: web\n", "  - name: "+name+"\n", 1)
	return strings.ReplaceAll(all, "tcp://", proto+"://")
}

// dial connects the client to the VIP.
func (w world) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	return w.dialFrom(t, w.Client)
}

func (w world) dialFrom(t *testing.T, client *testnet.Host) *net.TCPConn {
	t.Helper()
	c, err := client.Dial("tcp", w.vip)
	if err != nil {
		t.Fatalf("connect to the VIP: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// who is the name that the backend of a new connection gives.
func (w world) who(t *testing.T) string {
	t.Helper()
	name, err := w.Client.AskName(w.vip)
	if err != nil {
		t.Fatalf("ask the VIP for a name: %v", err)
	}
	return name
}

// serveNamed makes every backend say its name and echo.
func (w world) serveNamed() {
	for _, b := range w.Backends {
		b.Serve(8080, testnet.Named(b.Name()))
	}
}

// refused checks that the VIP refuses a connection at once.
func (w world) refused(t *testing.T, from *testnet.Host) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	c, err := from.DialContext(ctx, "tcp", netip.AddrPort{}, w.vip)
	if err == nil {
		c.Close()
		return errors.New("the VIP took a connection")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("want a refusal, got: %w", err)
	}
	return nil
}

// eventually is testnet.Eventually with ten seconds.
func eventually(t *testing.T, what string, cond func() error) {
	t.Helper()
	testnet.Eventually(t, 10*time.Second, what, cond)
}

// readEnd reads until the end and returns how many bytes came and how it ended:
// nil for a clean end.
func readEnd(c net.Conn, within time.Duration) (n int, err error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	buf := make([]byte, 64<<10)
	for {
		m, err := c.Read(buf)
		n += m
		if err != nil {
			if err.Error() == "EOF" {
				return n, nil
			}
			return n, err
		}
	}
}
