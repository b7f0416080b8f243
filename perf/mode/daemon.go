package mode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/perf/proc"
	"github.com/baton-lb/baton/perf/topology"
)

// daemon is a program that runs on the balancer, with a directory of its own for
// its configuration and sockets.
type daemon struct {
	hosts *topology.Hosts
	dir   string
	cmd   *testnet.Cmd
	out   output
	ended chan struct{} // closed when it has
}

// How long a program may take to serve, and to end.
const (
	startTime = 20 * time.Second
	endTime   = 5 * time.Second
)

// newDaemon makes the directory. start is called next, or close.
func newDaemon(h *topology.Hosts) (*daemon, error) {
	dir, err := os.MkdirTemp("", "baton-perf-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	return &daemon{hosts: h, dir: dir}, nil
}

func (d *daemon) path(name string) string { return filepath.Join(d.dir, name) }

func (d *daemon) write(name, text string) error {
	if err := os.WriteFile(d.path(name), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// start runs the program and waits until ready returns nil. With SIGTERM a program
// that this process leaves behind ends its children too.
func (d *daemon) start(ctx context.Context, ready func(context.Context) error, program string, args ...string) error {
	d.cmd = d.hosts.Balancer.Command(context.Background(), program, args...)
	d.cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	d.ended = make(chan struct{})
	go func() {
		_ = d.cmd.Wait()
		close(d.ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to serve: %w; it said: %s", program, err, d.out.String())
		case <-d.ended:
			return fmt.Errorf("%s has ended: %s", program, d.out.String())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// pids is the program's process and its children.
func (d *daemon) pids() []int {
	family, err := proc.Family(d.cmd.Process.Pid)
	if err != nil {
		return []int{d.cmd.Process.Pid}
	}
	return family
}

// close ends the program: by SIGTERM, and when that takes too long its whole
// family by SIGKILL.
func (d *daemon) close() error {
	defer os.RemoveAll(d.dir)
	if d.ended == nil {
		return nil
	}
	family := d.pids()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
		return nil
	case <-time.After(endTime):
	}
	for _, pid := range family {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-d.ended
	return fmt.Errorf("%s did not end within %v of SIGTERM", d.cmd.Path, endTime)
}

// masked is what all proxies have in common: clients send to the VIP, and backends
// see the balancer.
type masked struct{ *daemon }

// Target implements Running.
func (m masked) Target(s topology.Service, _ int) netip.AddrPort { return m.hosts.VIPAddr(s) }

// Shows implements Running.
func (m masked) Shows() []netip.Addr { return m.hosts.MaskedAt }

// Close implements Running.
func (m masked) Close() error { return m.close() }

// ownVIP gives the balancer the VIP, for proxies that serve only what their host
// has.
func ownVIP(h *topology.Hosts) error {
	return h.Try(func() {
		h.Balancer.AddAddr("lo", netip.PrefixFrom(h.VIP, h.VIP.BitLen()))
	})
}

// versionOf runs a program for the first line that it says of its version.
func versionOf(ctx context.Context, program, debianPackage, flag string) (string, error) {
	path, err := find(program, debianPackage)
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, flag).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if line == "" {
		return "", errors.New(path + " does not say its version")
	}
	return line, nil
}

// output keeps what a program says, the first 64 KiB.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if room := 64<<10 - o.buf.Len(); room > 0 {
		o.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(o.buf.String())
}
