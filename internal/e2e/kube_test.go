package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// cluster is a node with clients and pods on other hosts. The node serves what a file
// of objects says.
type cluster struct {
	*testnet.Star
	t    *testing.T
	dir  string
	mode string // --mode; "" = as it is
}

// eachMode runs a test where flows are terminated, and where they begin in the kernel if they may.
func eachMode(t *testing.T, pods int, f func(t *testing.T, c *cluster)) {
	t.Parallel()
	for _, mode := range []string{"proxy", "auto"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, pods)
			c.mode = mode
			f(t, c)
		})
	}
}

// Addresses of service web.
var (
	clusterIP4 = netip.MustParseAddr("10.96.0.10")
	clusterIP6 = netip.MustParseAddr("fd96::10")
	nodeIP4    = netip.MustParseAddr("127.0.0.1")
	nodeIP6    = netip.IPv6Loopback()
)

func newCluster(t *testing.T, pods int) *cluster {
	c := &cluster{Star: testnet.NewStar(t, pods), t: t, dir: t.TempDir()}
	for _, b := range c.Backends {
		b.Serve(8080, testnet.Named(b.Name()))
		for _, a := range []netip.Addr{b.IP4, b.IP6} {
			serveUDP(t, b, netip.AddrPortFrom(a, 5353), named(b.Name()))
		}
	}
	return c
}

// objects is a dump: service web of both families, at cluster IPs and node ports, with
// these pods, and further documents.
func (c *cluster) objects(pods []int, more ...string) string {
	var b strings.Builder
	b.WriteString(`apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: a, labels: {topology.kubernetes.io/zone: z1}}
- apiVersion: v1
  kind: Service
  metadata: {name: web, namespace: shop, uid: "1", creationTimestamp: "2026-01-01T00:00:00Z"}
  spec:
    type: NodePort
    clusterIP: 10.96.0.10
    clusterIPs: [10.96.0.10, "fd96::10"]
    ipFamilies: [IPv4, IPv6]
    ports:
    - {name: http, port: 80, targetPort: http, nodePort: 30080, protocol: TCP}
    - {name: dns, port: 53, targetPort: 5353, nodePort: 30053, protocol: UDP}
`)
	for _, family := range []string{"IPv4", "IPv6"} {
		fmt.Fprintf(&b, `- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-%s, namespace: shop, labels: {kubernetes.io/service-name: web}}
  addressType: %s
  ports: [{name: http, port: 8080, protocol: TCP}, {name: dns, port: 5353, protocol: UDP}]
  endpoints:
`, strings.ToLower(family), family)
		for _, i := range pods {
			a := c.Backends[i].IP4
			if family == "IPv6" {
				a = c.Backends[i].IP6
			}
			fmt.Fprintf(&b, "  - {addresses: [%q], nodeName: b, conditions: {ready: true}}\n", a)
		}
	}
	return b.String() + strings.Join(more, "")
}

func (c *cluster) file() string { return filepath.Join(c.dir, "objects.yaml") }

// write replaces the file as an editor does.
func (c *cluster) write(text string) {
	c.t.Helper()
	err := os.WriteFile(c.file()+".new", []byte(text), 0o644)
	if err == nil {
		err = os.Rename(c.file()+".new", c.file())
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// node makes `baton run --kube-objects` on the node.
func (c *cluster) node(flags ...string) *baton {
	b := &baton{t: c.t, log: new(logBuffer), dir: c.dir}
	b.http = unixClient(b.socket())
	args := append([]string{"run", "--kube-objects", c.file(), "--node", "a", "--socket", b.socket(), "--state-dir", c.dir}, flags...)
	if c.mode != "" {
		args = append(args, "--mode", c.mode)
	}
	b.cmd = c.Balancer.Command(context.Background(), batonPath, args...)
	b.cmd.Stderr, b.cmd.Stdout = b.log, b.log
	return b
}

func (c *cluster) start(flags ...string) *baton {
	c.t.Helper()
	b := c.node(flags...)
	b.run()
	b.waitServing()
	return b
}

// answers checks that a pod answers at an address, over TCP and UDP.
func (c *cluster) answers(from *testnet.Host, tcp, udp netip.AddrPort) {
	c.t.Helper()
	if err := c.ask(from, tcp, udp); err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) ask(from *testnet.Host, tcp, udp netip.AddrPort) error {
	if name, err := from.AskName(tcp); err != nil || !strings.HasPrefix(name, "backend") {
		return fmt.Errorf("%s asks tcp://%s: %q, %w", from.Name(), tcp, name, err)
	}
	conn, err := from.Dial("udp", udp)
	if err != nil {
		return err
	}
	defer conn.Close()
	if got, err := exchange(conn, []byte("who")); err != nil || !bytes.HasPrefix(got, []byte("backend")) {
		return fmt.Errorf("%s asks udp://%s: %q, %w", from.Name(), udp, got, err)
	}
	return nil
}

// everywhere checks every way to service web.
func (c *cluster) everywhere() {
	c.t.Helper()
	for _, vip := range []netip.Addr{clusterIP4, clusterIP6} {
		for _, from := range []*testnet.Host{c.Client, c.Balancer} {
			c.answers(from, netip.AddrPortFrom(vip, 80), netip.AddrPortFrom(vip, 53))
		}
	}
	for from, addresses := range map[*testnet.Host][]netip.Addr{
		c.Client:   {c.Balancer.IP4, c.Balancer.IP6},
		c.Balancer: {c.Balancer.IP4, c.Balancer.IP6, nodeIP4, nodeIP6},
	} {
		for _, a := range addresses {
			c.answers(from, netip.AddrPortFrom(a, 30080), netip.AddrPortFrom(a, 30053))
		}
	}
}

// Faulty objects, each in its own way.
const faultyObjects = `- apiVersion: v1
  kind: Service
  metadata: {name: invalid-ip, namespace: shop}
  spec: {clusterIP: 10.96.0.300, clusterIPs: [10.96.0.300], ports: [{port: 80}]}
- apiVersion: v1
  kind: Service
  metadata: {name: no-protocol, namespace: shop}
  spec: {clusterIP: 10.96.0.12, ports: [{port: 80, protocol: HTTP}]}
- apiVersion: v1
  kind: Service
  metadata: {name: thief, namespace: shop, creationTimestamp: "2026-02-01T00:00:00Z"}
  spec: {type: NodePort, clusterIP: 10.96.0.13, ports: [{port: 80, nodePort: 30080}]}
- apiVersion: v1
  kind: Service
  metadata: {name: no-number, namespace: shop}
  spec: {clusterIP: 10.96.0.14, ports: [{port: eighty}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: of-nobody, namespace: shop, labels: {kubernetes.io/service-name: nobody}}
  addressType: IPv4
  ports: [{name: "", port: 80}]
  endpoints: [{addresses: [10.202.1.9]}]
`

// A dump of a cluster is served at every address that its services have; objects that
// are faulty are named, and hinder no other.
func TestKubeObjects(t *testing.T) {
	eachMode(t, 2, func(t *testing.T, c *cluster) {
		c.write(c.objects([]int{0, 1}, faultyObjects))
		b := c.start("--healthz-bind-address", "0.0.0.0:10256")
		c.everywhere()
		c.wantModes(b)
		for _, name := range []string{"invalid-ip", "no-protocol", "thief", "no-number"} {
			b.waitLog(`object="Service shop/` + name + `" file=` + c.file())
		}
		for _, path := range []string{"http://127.0.0.1:10249/healthz", "http://127.0.0.1:10256/livez"} {
			if status, body := c.fetch(path); status != http.StatusOK {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		if _, body := c.fetch("http://127.0.0.1:10249/proxyMode"); body != "baton" {
			t.Errorf("proxyMode is %q", body)
		}
		_, body := c.fetch("http://127.0.0.1:10249/metrics")
		for _, want := range []string{
			"kubeproxy_sync_proxy_rules_duration_seconds_count ", "kubeproxy_sync_proxy_rules_last_timestamp_seconds ",
			"kubeproxy_network_programming_duration_seconds_count 0", "kubeproxy_sync_proxy_rules_service_changes_total ", "kubeproxy_sync_proxy_rules_endpoint_changes_pending 0",
			"baton_kubernetes_stale_seconds 0", `baton_kubernetes_objects{kind="Service"} 4`,
		} {
			if !strings.Contains(body, "\n"+want) {
				t.Errorf("no metric %s", want)
			}
		}
		var health struct {
			LastUpdated, CurrentTime time.Time
			NodeEligible             bool
		}
		if status, body := c.fetch("http://" + netip.AddrPortFrom(c.Balancer.IP4, 10256).String() + "/healthz"); status != http.StatusOK ||
			json.Unmarshal([]byte(body), &health) != nil || !health.NodeEligible || health.LastUpdated.IsZero() || health.CurrentTime.IsZero() {
			t.Errorf("/healthz: %d %s", status, body)
		}
	})
}

// fetch gets a page on the node.
// wantModes checks how a service's flows are carried: at its cluster IP by the kernel from the first packet on in mode auto, at a node
// port, which is at all addresses, never.
func (c *cluster) wantModes(b *baton) {
	c.t.Helper()
	want := flow.ModeProxy
	if c.mode == "auto" {
		want = flow.ModeSteer
	}
	conn, err := c.Client.Dial("tcp", netip.AddrPortFrom(clusterIP4, 80))
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := testnet.ReadName(conn); err != nil {
		c.t.Fatal(err)
	}
	client := netip.MustParseAddrPort(conn.LocalAddr().String())
	eventually(c.t, "the flow is listed", func() error {
		for _, v := range b.flows() {
			if v.Client == client && v.Mode == want {
				return nil
			}
		}
		return fmt.Errorf("there are %+v", b.flows())
	})
	var list struct {
		Services []struct {
			Mode      flow.Mode
			Frontends []struct {
				Frontend   string
				NotSteered flow.NotSteered
			}
		}
	}
	if err := b.get("/v1/services", &list); err != nil {
		c.t.Fatal(err)
	}
	for _, s := range list.Services {
		for _, fe := range s.Frontends {
			wildcard := strings.Contains(fe.Frontend, "//0.0.0.0:") || strings.Contains(fe.Frontend, "//[::]:")
			if got := fe.NotSteered != ""; s.Mode == flow.ModeSteer && got != wildcard || s.Mode != flow.ModeSteer && got {
				c.t.Errorf("%s, mode %s: not steered because of %q", fe.Frontend, s.Mode, fe.NotSteered)
			}
		}
	}
}

func (c *cluster) fetch(url string) (status int, body string) {
	c.t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return nil, err
			}
			return c.Balancer.DialContext(ctx, network, netip.AddrPort{}, at)
		},
	}}
	resp, err := client.Get(url)
	if err != nil {
		c.t.Errorf("get %s: %v", url, err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Error(err)
	}
	return resp.StatusCode, string(text)
}

// who is the name of the pod that a new connection meets.
func (c *cluster) who() string {
	name, err := c.Client.AskName(netip.AddrPortFrom(clusterIP4, 80))
	if err != nil {
		return err.Error()
	}
	return name
}

// meets waits until clients meet a pod.
func (c *cluster) meets(pod int) {
	c.t.Helper()
	eventually(c.t, "clients meet "+c.Backends[pod].Name(), func() error {
		for range len(c.Backends) { // also when more than one takes turns
			if name := c.who(); name != c.Backends[pod].Name() {
				return fmt.Errorf("they meet %s", name)
			}
		}
		return nil
	})
}

// A change of the file is in force soon; one that cannot be read changes nothing; a
// SIGHUP has it read; and after a restart, gentle or not, all is as before.
func TestKubeObjectsChange(t *testing.T) {
	eachMode(t, 2, func(t *testing.T, c *cluster) {
		c.write(c.objects([]int{0}))
		b := c.start()
		c.meets(0)
		open, err := c.Client.Dial("tcp", netip.AddrPortFrom(clusterIP4, 80))
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		if name, err := testnet.ReadName(open); err != nil || name != c.Backends[0].Name() {
			t.Fatalf("met %q, %v", name, err)
		}
		c.write(c.objects([]int{1}))
		c.meets(1)
		if err := testnet.Ask(open, "still there"); err != nil {
			t.Errorf("a connection that was open: %v", err)
		}
		c.write("items: [")
		b.waitLog("not YAML")
		c.meets(1)
		b.signal(syscall.SIGHUP)
		c.write(c.objects([]int{0}))
		c.meets(0)
		c.write(c.objects(nil))
		eventually(t, "a service without endpoints refuses", func() error {
			conn, err := c.Client.Dial("tcp", netip.AddrPortFrom(clusterIP4, 80))
			if err == nil {
				conn.Close()
				return errors.New("it takes connections")
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				return err
			}
			return nil
		})
		c.write(c.objects([]int{0, 1}))
		eventually(t, "it serves again", func() error {
			return c.ask(c.Client, netip.AddrPortFrom(clusterIP4, 80), netip.AddrPortFrom(clusterIP4, 53))
		})
		open.Close()

		if err := b.stop(syscall.SIGTERM); err != nil {
			t.Errorf("it stopped with %v", err)
		}
		b = c.start()
		c.everywhere()
		_ = b.stop(syscall.SIGKILL)
		c.start()
		c.everywhere()
	})
}

// Another process takes over, with the addresses where load balancers ask.
func TestKubeUpgrade(t *testing.T) {
	eachMode(t, 2, func(t *testing.T, c *cluster) {
		c.write(c.objects([]int{0, 1}))
		flags := []string{"--healthz-bind-address", "0.0.0.0:10256"}
		b := c.start(flags...)
		w := world{Star: c.Star, vip: netip.AddrPortFrom(clusterIP4, 80)}
		load := w.load(t, 2)
		load.more(t, 20)
		next := c.start(append(flags, "--upgrade")...)
		load.more(t, 20)
		load.end(t)
		b.exits(20 * time.Second)
		c.everywhere()
		if status, body := c.fetch("http://127.0.0.1:10256/healthz"); status != http.StatusOK {
			t.Errorf("/healthz: %d %s", status, body)
		}
		c.write(c.objects([]int{1}))
		c.meets(1)
		if err := next.stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	})
}
