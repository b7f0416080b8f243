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

	"github.com/baton-lb/baton/internal/testnet"
)

// cluster is a node with clients and pods on other hosts. The node serves what a file
// of objects says.
type cluster struct {
	*testnet.Star
	t   *testing.T
	dir string
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
	t.Parallel()
	c := newCluster(t, 2)
	c.write(c.objects([]int{0, 1}, faultyObjects))
	b := c.start("--healthz-bind-address", "0.0.0.0:10256")
	c.everywhere()
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
		"kubeproxy_network_programming_duration_seconds_count 0", "baton_kubernetes_stale_seconds 0", `baton_kubernetes_objects{kind="Service"} 4`,
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
}

// fetch gets a page on the node.
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
	t.Parallel()
	c := newCluster(t, 2)
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
}

// Another process takes over, with the addresses where load balancers ask.
func TestKubeUpgrade(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	c.write(c.objects([]int{0, 1}))
	flags := []string{"--healthz-bind-address", "0.0.0.0:10256"}
	b := c.start(flags...)
	w := world{Star: c.Star, vip: netip.AddrPortFrom(clusterIP4, 80)}
	load := w.load(2)
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
}

// What is wrong with how it is told is told by name.
func TestKubeRefusals(t *testing.T) {
	t.Parallel()
	host := testnet.New(t).Host("node")
	const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	for _, tc := range []struct {
		name, config string
		args         string
		code         int
		want         []string
	}{
		{"fields", head + "mode: ipvs\nipvs: {scheduler: rr}\nbindAddress: 0.0.0.0\n", "--kubernetes --config DIR/baton.yaml", 1,
			[]string{"DIR/baton.yaml:3: mode: ", "DIR/baton.yaml:4: ipvs: there is no IPVS here: leave it out"}},
		{"no pod", "", "--kubernetes", 1, []string{"reach the API server: this is no pod of a cluster; name a file with --kubeconfig"}},
		{"no kubeconfig", "", "--kubernetes --kubeconfig DIR/none", 1, []string{"reach the API server: … no such file"}},
		{"no objects", "", "--kube-objects DIR/none", 1, []string{"read objects: … no such file"}},
		{"mode", "", "--kubernetes --mode steer", 2, []string{"--mode steer is not built yet"}},
		{"two sources", "", "--kubernetes --kube-objects DIR", 2, []string{"--kubernetes and --kube-objects are two sources"}},
		{"flag of the other", "", "--config DIR/x --node a", 2, []string{"--node is for --kubernetes and --kube-objects"}},
		{"addresses", "", "--kubernetes --nodeport-addresses here", 1, []string{`--nodeport-addresses: "here" is not IP/BITS`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			args := append([]string{"run", "--state-dir", dir, "--socket", dir + "/admin.sock"}, strings.Fields(strings.ReplaceAll(tc.args, "DIR", dir))...)
			attempt{host: host, dir: dir, config: tc.config, args: args}.run(t).says(t, tc.code, tc.want...)
		})
	}
}

// An API server that does not answer is waited for: the process lives, is not ready,
// says why, and stops when it is told to.
func TestKubeWaitsForTheAPIServer(t *testing.T) {
	t.Parallel()
	c := &cluster{Star: testnet.NewStar(t, 0), t: t, dir: t.TempDir()}
	config := filepath.Join(c.dir, "kubeconfig")
	text := `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:6443"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := c.node()
	args := []string{batonPath, "run", "--kubernetes", "--kubeconfig", config, "--node", "a", "--socket", b.socket(), "--state-dir", c.dir}
	b.cmd = c.Balancer.Command(context.Background(), args[0], args[1:]...)
	b.cmd.Stderr, b.cmd.Stdout = b.log, b.log
	b.run()
	b.waitLog("the API server is out of reach")
	for path, want := range map[string]int{"127.0.0.1:10256/livez": 200, "127.0.0.1:10256/healthz": 503, "127.0.0.1:10249/livez": 200, "127.0.0.1:10249/readyz": 503} {
		if status, body := c.fetch("http://" + path); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if err := b.stop(syscall.SIGTERM); err != nil {
		t.Errorf("it stopped with %v", err)
	}
	if s := b.log.String(); !strings.Contains(s, "stopped while starting") || strings.Contains(s, "msg=serving") {
		t.Errorf("it logged\n%s", s)
	}
}

// A port that somebody else has is that frontend's failure, also at the start: all
// others are served, and it is too as soon as it can be.
func TestKubeTakenPort(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.write(c.objects([]int{0}))
	other, err := c.Balancer.Listen("tcp4", netip.AddrPortFrom(netip.IPv4Unspecified(), 30080))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	b := c.start()
	c.answers(c.Client, netip.AddrPortFrom(clusterIP4, 80), netip.AddrPortFrom(clusterIP4, 53))
	c.answers(c.Client, netip.AddrPortFrom(c.Balancer.IP6, 30080), netip.AddrPortFrom(c.Balancer.IP4, 30053))
	status := func() string {
		var list struct {
			Services []struct {
				Frontends []struct{ Frontend, Status, Reason string }
			}
		}
		if err := b.get("/v1/services", &list); err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Services {
			for _, fe := range s.Frontends {
				if fe.Frontend == "tcp://0.0.0.0:30080" {
					return fe.Status + " " + fe.Reason
				}
			}
		}
		return "absent"
	}
	if got := status(); !strings.HasPrefix(got, "failed ") {
		t.Errorf("the frontend is %s", got)
	}
	b.waitLog("programming failed")
	other.Close()
	eventually(t, "it is served at last", func() error {
		if got := status(); !strings.HasPrefix(got, "ready") {
			return errors.New(got)
		}
		return c.ask(c.Client, netip.AddrPortFrom(c.Balancer.IP4, 30080), netip.AddrPortFrom(c.Balancer.IP4, 30053))
	})
}

// policies are Services whose clients are not all served alike: one for clients of this
// node's own pods only, and one behind a balancer's address for some sources.
func (c *cluster) policies(node string) string {
	text := fmt.Sprintf(`- apiVersion: v1
  kind: Service
  metadata: {name: near, namespace: shop}
  spec:
    type: NodePort
    externalTrafficPolicy: Local
    clusterIP: 10.96.0.20
    ports: [{name: http, port: 80, nodePort: 30081, protocol: TCP}, {name: dns, port: 53, nodePort: 30054, protocol: UDP}]
- apiVersion: v1
  kind: Service
  metadata: {name: some, namespace: shop}
  spec:
    type: LoadBalancer
    clusterIP: 10.96.0.21
    loadBalancerSourceRanges: ["%s/32"]
    ports: [{name: http, port: 80, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]
  status: {loadBalancer: {ingress: [{ip: 198.51.100.10, ipMode: VIP}]}}
`, c.Client.IP4)
	for _, name := range []string{"near", "some"} {
		text += fmt.Sprintf(`- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: %s-1, namespace: shop, labels: {kubernetes.io/service-name: %s}}
  addressType: IPv4
  ports: [{name: http, port: 8080, protocol: TCP}, {name: dns, port: 5353, protocol: UDP}]
  endpoints: [{addresses: [%q], nodeName: %s}]
`, name, name, c.Backends[0].IP4, node)
	}
	return text
}

// meet is what a client meets at an address: a name, "refused" or "silence".
func meet(from *testnet.Host, network string, at netip.AddrPort) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := from.DialContext(ctx, network, netip.AddrPort{}, at)
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		if network == "tcp" {
			_, err = testnet.ReadName(conn)
		} else {
			_, err = exchange(conn, []byte("who"))
		}
	}
	switch {
	case err == nil:
		return "a pod"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return "silence"
	}
	return err.Error()
}

// K1: of a service with policy Local and no endpoint here, clients from outside hear
// nothing, and those on the node are served; of one with none at all everybody is refused. A
// client outside of the source ranges does not see an open port.
func TestKubePolicies(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	stranger := c.AddClient("stranger")
	c.write(c.objects([]int{0}, c.policies("b")))
	c.start()
	near, lbIP := netip.AddrPortFrom(c.Balancer.IP4, 0), netip.MustParseAddrPort("198.51.100.10:0")
	at := func(a netip.AddrPort, port uint16) netip.AddrPort { return netip.AddrPortFrom(a.Addr(), port) }
	want := func(what string, from *testnet.Host, tcp, udp netip.AddrPort, answer string) {
		t.Helper()
		eventually(t, fmt.Sprintf("%s: %s meets %s", what, from.Name(), answer), func() error {
			if got := meet(from, "tcp", tcp); got != answer {
				return fmt.Errorf("tcp://%s: %s", tcp, got)
			}
			if got := meet(from, "udp", udp); got != answer {
				return fmt.Errorf("udp://%s: %s", udp, got)
			}
			return nil
		})
	}
	want("endpoints elsewhere", c.Client, at(near, 30081), at(near, 30054), "silence")
	want("endpoints elsewhere", c.Balancer, at(near, 30081), at(near, 30054), "a pod")
	want("source ranges", c.Client, at(lbIP, 80), at(lbIP, 53), "a pod")
	want("source ranges", stranger, at(lbIP, 80), at(lbIP, 53), "silence")

	c.write(c.objects([]int{0}, c.policies("a")))
	want("endpoints here", c.Client, at(near, 30081), at(near, 30054), "a pod")
	c.write(c.objects([]int{0}, strings.ReplaceAll(c.policies("a"), "nodeName: a}", "conditions: {ready: false, serving: false}}")))
	want("no endpoints", c.Client, at(near, 30081), at(near, 30054), "refused")
	want("no endpoints", c.Balancer, at(near, 30081), at(near, 30054), "refused")
}
