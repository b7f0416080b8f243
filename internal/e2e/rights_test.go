package e2e

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

const daemonSetFile = "../../deploy/kubernetes/base/daemonset.yaml"

// deployedCapabilities are those that the manifests give.
func deployedCapabilities(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(daemonSetFile)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						SecurityContext struct{ Capabilities struct{ Add []string } } `yaml:"securityContext"`
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	all := d.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add
	if len(all) == 0 {
		t.Fatalf("%s gives no capabilities", daemonSetFile)
	}
	return all
}

// confine has the command run as in a container: root with these capabilities alone, and
// file systems of its own, of which /proc/sys cannot be written to.
func (b *baton) confine(capabilities []string) {
	b.t.Helper()
	bounds := "-all"
	for _, c := range capabilities {
		bounds += ",+" + strings.ToLower(c)
	}
	settings := filepath.Join(b.dir, "sys")
	if err := os.MkdirAll(settings, 0o755); err != nil {
		b.t.Fatal(err)
	}
	const script = `mount --bind /proc/sys "$1" && mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && shift && exec setpriv --bounding-set "$@"`
	args := append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", settings, bounds}, b.cmd.Args...)
	cmd := b.cmd.Cmd
	cmd.Path, cmd.Args, cmd.Env = "/usr/bin/unshare", args, append(os.Environ(), "BATON_PROC_SYS="+settings)
}

// hostBPFFS mounts one where the command looks for it, as the host has it.
func (b *baton) hostBPFFS() {
	b.t.Helper()
	at := filepath.Join(b.dir, "bpf")
	if err := os.MkdirAll(at, 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := unix.Mount("host", at, "bpf", 0, "mode=0700"); err != nil {
		b.t.Fatal(err)
	}
}

// In a container that is not privileged everything works: the manifests give the rights
// that it takes.
func TestDeployedRights(t *testing.T) {
	rights := deployedCapabilities(t)
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = inKernel
		w.serveNamed()
		serveUDP(t, w.Backends[0], w.backend(0), named("backend1"))
		services := w.service(nil, "clientAddress: transparent") + w.another("dns", "udp", 0)
		b := prepare(t, w.Balancer, t.TempDir(), services)
		b.confine(rights)
		b.hostBPFFS()
		b.run()
		b.waitServing()
		c, _ := w.named(t)
		v := w.carried(b, c.TCPConn)[0]
		if v.NotTransparent != "" {
			t.Errorf("the client's address is masked: %s", v.NotTransparent)
		}
		c.works(t)
		u := w.udp(t, w.vip)
		if _, err := exchange(u, []byte("x")); err != nil {
			t.Error(err)
		}
		w.carriedUDP(b, u)

		next := b.successor(w.Balancer, services)
		next.confine(rights)
		next.run()
		next.waitServing()
		c.works(t)
		w.carried(next, c.TCPConn)
		b.exits(20 * time.Second)
		for _, one := range []*baton{b, next} {
			for line := range strings.Lines(one.log.String()) {
				if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
					t.Errorf("it complains: %s", line)
				}
			}
		}
		c.ends(t)
		if err := next.stop(syscall.SIGTERM); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

// None of them is too many: each is missed.
func TestDeployedRightsAreNeeded(t *testing.T) {
	rights := deployedCapabilities(t)
	for i, right := range rights {
		t.Run(right, func(t *testing.T) {
			w := world{Star: testnet.NewStar(t, 1), vip: netip.MustParseAddrPort("10.96.0.10:80"), offload: inKernel}
			b := prepare(t, w.Balancer, t.TempDir(), w.service(nil)+w.another("dns", "udp", 0))
			b.confine(slices.Delete(slices.Clone(rights), i, i+1))
			b.hostBPFFS()
			b.run()
			eventually(t, "it complains", func() error {
				log := b.log.String()
				if strings.Contains(log, "level=ERROR") || strings.Contains(log, "permitted") || strings.Contains(log, "permission") {
					return nil
				}
				return errors.New("it logged:\n" + log)
			})
		})
	}
}
