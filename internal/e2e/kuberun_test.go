package e2e

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/baton-lb/baton/internal/testnet"
)

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
		{"mode", "", "--kubernetes --mode fast", 2, []string{`--mode "fast": use auto, steer or proxy`}},
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
