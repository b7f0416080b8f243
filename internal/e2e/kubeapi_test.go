package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testkube"
	"github.com/baton-lb/baton/internal/testnet"
)

// What the manifests give a node.
const (
	roleFile   = "../../deploy/kubernetes/base/rbac.yaml"
	configFile = "../../deploy/kubernetes/base/config.yaml"
)

// realCluster is a cluster whose objects are at a real API server, on a host of its
// own beyond the node.
type realCluster struct {
	*cluster
	control *testnet.Host
	api     *testkube.Cluster
	granted []testkube.Request
	web     testkube.Service
}

// How long the API server, its controller and the node may take together on a machine
// that has other things to do.
const apiTime = 60 * time.Second

func newRealCluster(t *testing.T, pods int) *realCluster {
	c := &realCluster{cluster: newCluster(t, pods)}
	c.control = c.AddClient("control")
	c.api = testkube.Start(t, c.control, testkube.Options{ServiceCIDRs: []netip.Prefix{
		netip.MustParsePrefix("10.96.0.0/24"), netip.MustParsePrefix("fd96::/108"),
	}})
	c.acceptsManifests()
	c.granted = c.api.Grant(roleFile)
	c.api.AddNode("a", "z1", c.Balancer.IP4, c.Balancer.IP6)
	for i := range pods {
		c.addPod(i)
	}
	c.web = c.api.AddService(testkube.Service{
		Name: "web", Selector: map[string]string{"app": "web"}, NodePort: true,
		Ports: []testkube.Port{{Name: "http", Proto: "tcp", Port: 80, Target: 8080}, {Name: "dns", Proto: "udp", Port: 53, Target: 5353}},
	})
	return c
}

func (c *realCluster) pod(i int) string { return c.Backends[i].Name() }

func (c *realCluster) addPod(i int) {
	c.t.Helper()
	c.api.AddPod(testkube.Pod{
		Name: c.pod(i), Node: "a", Labels: map[string]string{"app": "web"}, IPs: []netip.Addr{c.Backends[i].IP4, c.Backends[i].IP6},
	})
}

// node makes `baton run --kubernetes` on the node.
func (c *realCluster) node(flags ...string) *baton {
	b := &baton{t: c.t, log: new(logBuffer), dir: c.dir}
	b.http = unixClient(b.socket())
	account := testkube.ServiceAccount("kube-system", "baton")
	args := append([]string{"run", "--kubernetes", "--kubeconfig", c.api.Kubeconfig(account), "--config", configFile, "--node", "a",
		"--socket", b.socket(), "--state-dir", c.dir}, flags...)
	b.cmd = c.Balancer.Command(context.Background(), batonPath, args...)
	b.cmd.Stderr, b.cmd.Stdout = b.log, b.log
	b.run()
	testnet.Eventually(c.t, apiTime, "baton serves the cluster", func() error {
		if strings.Contains(b.log.String(), "msg=serving") {
			return nil
		}
		return errors.New("it logged:\n" + b.log.String())
	})
	return b
}

// everywhere checks every way to service web, from outside and from the node.
func (c *realCluster) everywhere() error {
	tcp, udp := c.web.Ports[0], c.web.Ports[1]
	for _, vip := range c.web.ClusterIPs {
		for _, from := range []*testnet.Host{c.Client, c.Balancer} {
			if err := c.ask(from, netip.AddrPortFrom(vip, tcp.Port), netip.AddrPortFrom(vip, udp.Port)); err != nil {
				return err
			}
		}
	}
	for _, node := range []netip.Addr{c.Balancer.IP4, c.Balancer.IP6} {
		if err := c.ask(c.Client, netip.AddrPortFrom(node, tcp.NodePort), netip.AddrPortFrom(node, udp.NodePort)); err != nil {
			return err
		}
	}
	return nil
}

// served waits until these pods and no others answer at the cluster IPs.
func (c *realCluster) served(pods ...int) {
	c.t.Helper()
	var want []string
	for _, i := range pods {
		want = append(want, c.pod(i))
	}
	testnet.Eventually(c.t, apiTime, fmt.Sprintf("%v answer", want), func() error {
		for _, vip := range c.web.ClusterIPs {
			var got []string
			for range 4 * len(c.Backends) { // they take turns
				name, err := c.Client.AskName(netip.AddrPortFrom(vip, 80))
				if err != nil {
					return err
				}
				if !slices.Contains(got, name) {
					got = append(got, name)
				}
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				return fmt.Errorf("%v answer at %s", got, vip)
			}
		}
		return nil
	})
}

// stale reports whether the node says that it has lost the API server.
func (b *baton) stale() (bool, error) {
	page, err := b.text("/metrics")
	if err != nil {
		return false, err
	}
	_, rest, ok := strings.Cut(page, "\nbaton_kubernetes_stale_seconds ")
	if !ok {
		return false, errors.New("there is no baton_kubernetes_stale_seconds")
	}
	value, _, _ := strings.Cut(rest, "\n")
	return value != "0", nil
}

func (b *baton) becomesStale(want bool) {
	b.t.Helper()
	testnet.Eventually(b.t, apiTime, fmt.Sprintf("it is stale: %v", want), func() error {
		if got, err := b.stale(); err != nil || got != want {
			return fmt.Errorf("it is: %v, %w; it logged:\n%s", got, err, b.log)
		}
		return nil
	})
}

// A node serves what a real API server says, as the manifests allow it to ask; K2:
// while that server is away serving goes on, and then it catches up.
func TestKubernetesAPI(t *testing.T) {
	t.Parallel()
	c := newRealCluster(t, 2)
	b := c.node()
	testnet.Eventually(t, apiTime, "every way to the service works", c.everywhere)
	c.served(0, 1)

	c.api.SetReady(c.pod(1), false)
	c.served(0)
	c.api.SetReady(c.pod(1), true)
	c.served(0, 1)
	c.api.DeletePod(c.pod(0))
	c.served(1)
	c.addPod(0)
	c.served(0, 1)

	// The next process takes over, as an update of the DaemonSet has it.
	vip := netip.AddrPortFrom(c.web.ClusterIPs[0], 80)
	kept := c.keep(vip)
	next := c.node("--upgrade")
	if err := c.everywhere(); err != nil {
		t.Error(err)
	}
	kept.works(t)
	kept.ends(t)
	b.exits(apiTime)
	b = next

	kept = c.keep(vip)
	c.api.StopAPIServer()
	b.becomesStale(true)
	kept.works(t)
	if err := c.everywhere(); err != nil {
		t.Error(err)
	}

	// It is back, but out of the node's reach, and things change.
	c.control.Mute()
	c.api.StartAPIServer()
	c.api.SetReady(c.pod(1), false)
	for _, v6 := range []bool{false, true} {
		testnet.Eventually(t, apiTime, "the controller has changed the slice", func() error {
			if n, err := c.api.Endpoints("web", v6); err != nil || n != 1 {
				return fmt.Errorf("%d endpoints are ready: %w", n, err)
			}
			return nil
		})
	}
	kept.works(t)
	if err := c.everywhere(); err != nil {
		t.Error(err)
	}
	if stale, err := b.stale(); !stale {
		t.Errorf("it says that it is up to date: %v", err)
	}
	c.served(0, 1) // as it knew them last
	c.control.Unmute()
	b.becomesStale(false)
	c.served(0)
	kept.works(t)
	kept.ends(t)

	c.fits(b)
	if err := b.stop(syscall.SIGTERM); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// acceptsManifests checks that the API server would take what deploy has.
func (c *realCluster) acceptsManifests() {
	c.t.Helper()
	const base, overlay = "../../deploy/kubernetes/base/", "../../deploy/kubernetes/replace-kube-proxy/"
	// What kustomize fills in.
	here := strings.NewReplacer("name: baton\nspec:\n  selector:", "name: baton\n  namespace: kube-system\nspec:\n  selector:",
		"template:\n    metadata:\n", "template:\n    metadata:\n      labels: {app.kubernetes.io/name: baton}\n",
		"kind: ServiceAccount\n    name: baton", "kind: ServiceAccount\n    name: baton\n    namespace: kube-system",
		"NODE", "a")
	for _, err := range []error{
		c.api.Accepts(base+"rbac.yaml", here),
		c.api.Accepts(base+"daemonset.yaml", here),
		c.api.Accepts(base+"daemonset.yaml", here, overlay+"on-labelled-nodes.yaml", overlay+"after-kube-proxy.yaml", overlay+"kube-proxy-elsewhere.yaml"),
		c.api.Accepts(overlay+"cleanup-pod.yaml", here),
	} {
		if err != nil {
			c.t.Error(err)
		}
	}
}

// keep opens a connection that is to stay.
func (c *realCluster) keep(to netip.AddrPort) *conn {
	c.t.Helper()
	w := world{Star: c.Star, vip: to}
	kept, _ := w.named(c.t)
	return kept
}

// seldom is granted and asked for only by an event that repeats.
var seldom = testkube.Request{Verb: "patch", Group: "events.k8s.io", Resource: "events"}

// fits checks that the node was allowed all that it asked for, and asks for all that it
// is allowed.
func (c *realCluster) fits(b *baton) {
	c.t.Helper()
	testnet.Eventually(c.t, apiTime, "all is asked for that is allowed", func() error {
		asked, _ := c.api.Requests()
		for _, r := range c.granted {
			if r != seldom && !slices.Contains(asked, r) {
				return fmt.Errorf("%s allows %s, which nothing asks for", roleFile, r)
			}
		}
		return nil
	})
	if _, forbidden := c.api.Requests(); len(forbidden) > 0 {
		c.t.Errorf("%s does not allow %v; baton logged:\n%s", roleFile, forbidden, b.log)
	}
}
