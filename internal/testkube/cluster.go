package testkube

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/baton-lb/baton/internal/testnet"
)

// Options of a cluster.
type Options struct {
	ServiceCIDRs []netip.Prefix // one a family, the primary one first
}

// Cluster is a control plane on a host. All of it ends with the test.
type Cluster struct {
	t       testnet.TB
	host    *testnet.Host
	o       Options
	dir     string
	program string

	etcd, apiserver, controller *component

	// Client may do everything.
	Client kubernetes.Interface
}

const (
	apiPort  = 6443
	etcdPort = 2379

	startTimeout = 60 * time.Second
)

// Start brings a cluster up on a host, which is to have an address that the nodes
// reach. It needs root, etcd, and Go when the programs are not built yet. Without etcd
// the test is skipped, or fails where CI is set.
func Start(t testnet.TB, host *testnet.Host, o Options) *Cluster {
	t.Helper()
	testnet.RequireRoot(t)
	requireEtcd(t)
	c := &Cluster{t: t, host: host, o: o}
	var err error
	var release func() error
	if c.program, release, err = program(t.Context()); err != nil {
		t.Fatalf("get Kubernetes: %v", err)
	}
	t.Cleanup(func() { _ = release() })
	if c.dir, err = os.MkdirTemp("", "baton-testkube-"); err != nil {
		t.Fatalf("make a directory for the cluster: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(c.dir) })
	if err := c.writeFiles(); err != nil {
		t.Fatalf("configure the cluster: %v", err)
	}
	c.startEtcd()
	c.StartAPIServer()
	if c.Client, err = kubernetes.NewForConfig(c.config(admin)); err != nil {
		t.Fatalf("make a client: %v", err)
	}
	c.startController()
	return c
}

func requireEtcd(t testnet.TB) {
	t.Helper()
	switch _, err := exec.LookPath("etcd"); {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("a cluster needs etcd: %v", err)
	default:
		t.Skipf("a cluster needs etcd (Debian: etcd-server): %v", err)
	}
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// server is where the API server is.
func (c *Cluster) server() netip.AddrPort { return netip.AddrPortFrom(c.host.IP4, apiPort) }

// config is how this process reaches the API server as a user: by the host's network.
func (c *Cluster) config(u User) *rest.Config {
	return &rest.Config{
		Host: "https://" + c.server().String(), BearerToken: u.token(),
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.path("apiserver.crt")},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return nil, err
			}
			return c.host.DialContext(ctx, network, netip.AddrPort{}, to)
		},
		QPS: 1000, Burst: 1000,
	}
}

func (c *Cluster) startEtcd() {
	c.t.Helper()
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", etcdPort), fmt.Sprintf("http://127.0.0.1:%d", etcdPort+1)
	c.etcd = c.newComponent("etcd", "etcd", "--name=test", "--data-dir="+c.path("etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=test="+peer)
	c.etcd.start()
}

// StartAPIServer starts it, also again, and waits until it answers.
func (c *Cluster) StartAPIServer() {
	c.t.Helper()
	var cidrs []string
	for _, p := range c.o.ServiceCIDRs {
		cidrs = append(cidrs, p.String())
	}
	c.apiserver = c.newComponent("kube-apiserver", c.program, "apiserver",
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", etcdPort),
		"--service-cluster-ip-range="+strings.Join(cidrs, ","),
		"--allow-privileged=true", "--bind-address="+c.host.IP4.String(), "--advertise-address="+c.host.IP4.String(),
		fmt.Sprintf("--secure-port=%d", apiPort), "--cert-dir="+c.dir,
		"--token-auth-file="+c.path(tokensFile), "--authorization-mode=RBAC", "--anonymous-auth=false",
		"--service-account-issuer=https://testkube", "--service-account-key-file="+c.path(keyFile),
		"--service-account-signing-key-file="+c.path(keyFile),
		"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none",
		"--audit-policy-file="+c.path(auditPolicyFile), "--audit-log-path="+c.path(auditFile),
		"--audit-log-mode=blocking", "--v=0")
	c.apiserver.start()
	c.apiserver.eventually("the API server is ready", func() error {
		return c.get("/readyz")
	})
}

// StopAPIServer kills it, with every connection to it. The controller goes on trying.
func (c *Cluster) StopAPIServer() {
	c.t.Helper()
	c.apiserver.kill()
}

func (c *Cluster) startController() {
	c.t.Helper()
	c.controller = c.newComponent("the endpoint slice controller", c.program, "endpointslices", c.Kubeconfig(admin))
	c.controller.start()
}

// get asks the API server for a path as an admin, and wants it to be fine.
func (c *Cluster) get(path string) error {
	if _, err := os.Stat(c.path("apiserver.crt")); err != nil {
		return err // it has not made it yet
	}
	client, err := kubernetes.NewForConfig(c.config(admin))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	return client.RESTClient().Get().AbsPath(path).Do(ctx).Error()
}
