package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// A container is the command as process 1 of a PID namespace, on the host's network: what
// a pod of the DaemonSet is to another one.
type container struct {
	*baton
	w world
}

// contain starts the command so.
func contain(w world, b *baton) *container {
	b.t.Helper()
	b.cmd.Args = append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"}, b.cmd.Args...)
	b.cmd.Cmd.Path = "/usr/bin/unshare"
	b.run()
	return &container{b, w}
}

// pid is the command's, as it is here.
func (c *container) pid() (int, error) {
	outer := c.cmd.Process.Pid
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", outer, outer))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// ready asks as the probe does: inside the container.
func (c *container) ready() error {
	pid, err := c.pid()
	if err != nil {
		return err
	}
	out, err := c.w.Balancer.Command(context.Background(), "nsenter", "--target", strconv.Itoa(pid), "--pid", "--mount",
		batonPath, "ready", "--pid=1", "--socket", c.socket()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (c *container) becomesReady() {
	c.t.Helper()
	testnet.Eventually(c.t, 30*time.Second, "the container is ready", func() error {
		if err := c.ready(); err != nil {
			return fmt.Errorf("%w; it logged:\n%s", err, c.log)
		}
		return nil
	})
}

// terminate is what a kubelet does first.
func (c *container) terminate() {
	c.t.Helper()
	pid, err := c.pid()
	if err == nil {
		err = unix.Kill(pid, syscall.SIGTERM)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// Updates of the DaemonSet, three in a row, each beside the pod that runs: no connection
// fails, and none is cut. The processes have the same id, and know nothing of each other's.
func TestUpdateOfContainers(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		w.offload = inUserspace // what may go into the kernel would, and no pod wait
		services := w.service(nil)
		first := prepare(t, w.Balancer, t.TempDir(), services)
		first.hostBPFFS()
		pods := []*container{contain(w, first)}
		pods[0].becomesReady()
		var conns []*conn
		l := w.load(t, 2)
		for range 3 {
			old := pods[len(pods)-1]
			c, _ := w.named(t)
			conns = append(conns, c)
			next := contain(w, old.successor(w.Balancer, services))
			next.becomesReady()
			if err := old.ready(); err == nil {
				t.Error("the old pod is ready")
			}
			old.terminate()
			old.waitLog("another signal ends them")
			pods = append(pods, next)
			l.more(t, 20)
			for _, c := range conns {
				c.works(t)
			}
		}
		l.end(t)
		for i, c := range conns {
			c.works(t)
			c.ends(t)
			pods[i].exits(20 * time.Second)
		}
		last := pods[len(pods)-1]
		w.who(t)
		if err := last.ready(); err != nil {
			t.Error(err)
		}
		last.terminate()
		last.exits(20 * time.Second)
	})
}
