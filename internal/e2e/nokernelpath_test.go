package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
)

// A host that cannot carry flows in the kernel serves as before: each flow says why it
// stays, the log says it once, loudly where a service counts on it, and nothing is left
// of the attempt.
func TestNoKernelPath(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		var before string
		w.Balancer.Do(func() { // no port is left to lend
			const path = "/proc/sys/net/ipv4/ip_local_reserved_ports"
			if err := os.WriteFile(path, []byte("46884-60999\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		})
		before = reservedPorts(t, w.Balancer)
		for offload, level := range map[string]string{inKernel: "level=ERROR", "offload: {path: bpf}": "level=ERROR", "offload: {mode: auto}": "level=INFO"} {
			b := start(t, w.Balancer, w.service(nil, offload))
			c, _ := w.named(t)
			c.works(t)
			if v := b.flowOf(c.LocalAddr()); v.Path != flow.PathUserspace || v.NotOffloaded != flow.NotOffloadedUnavailable {
				t.Errorf("%s: %+v", offload, v)
			}
			if !lineWith(b.log.String(), level, "this host has no kernel path", "reserved") {
				t.Errorf("%s: the log:\n%s", offload, b.log)
			}
			c.ends(t)
			if err := b.stop(syscall.SIGTERM); err != nil {
				t.Errorf("stop: %v", err)
			}
			b.gone(w)
			if left, _ := filepath.Glob(filepath.Join(b.dir, "*")); strings.Join(left, " ") != b.config() {
				t.Errorf("left: %v", left)
			}
		}
		if now := reservedPorts(t, w.Balancer); now != before {
			t.Errorf("reserved ports were %s, are %s", before, now)
		}
		if left := programs(t, w.Balancer); len(left) > 0 {
			t.Errorf("programs are left: %v", left)
		}
	})
}
