package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/admin"
)

// host is where the probes look.
type host struct {
	proc string // /proc; a tree of a test's own
	o    Options

	caps    uint64 // effective
	capsErr error

	guard       func() error // tries one, once
	handoff     func() trial // likewise
	transparent func() Finding

	holder    admin.Holder // who holds the instance lock
	held      bool
	holderErr error
}

func newHost(o Options) *host {
	h := &host{proc: "/proc", o: o}
	h.guard = sync.OnceValue(func() error {
		if o.Guard == nil {
			return errNoGuard
		}
		return elsewhere(o.Guard)
	})
	h.handoff, h.transparent = tryHandoff(o.Handoff), tryTransparent(o.Transparent)
	h.caps, h.capsErr = effectiveCaps()
	h.holder, h.held, h.holderErr = admin.FindHolder()
	return h
}

// effectiveCaps asks what the calling thread may do (capget(2)).
func effectiveCaps() (uint64, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

func (h *host) has(capability int) bool { return h.caps&(1<<capability) != 0 }

// sysctl reads a value below /proc/sys, by its name with slashes.
func (h *host) sysctl(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(h.proc, "sys", name))
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", strings.ReplaceAll(name, "/", "."), err)
	}
	return strings.TrimSpace(string(b)), nil
}

// sysctls reads the numbers of a sysctl, at least one.
func (h *host) sysctls(name string) ([]int, error) {
	text, err := h.sysctl(name)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, word := range strings.Fields(text) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("sysctl %s is %q, not a number", name, word)
		}
		all = append(all, n)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("sysctl %s is empty", name)
	}
	return all, nil
}

// firstFreePort is the first port that needs no capability.
func (h *host) firstFreePort() int {
	n, err := h.sysctls("net/ipv4/ip_unprivileged_port_start")
	if err != nil {
		return 1024
	}
	return n[0]
}

// mayBind reports whether the port needs no capability, or we have it.
func (h *host) mayBind(port uint16) bool {
	return h.has(unix.CAP_NET_BIND_SERVICE) || int(port) >= h.firstFreePort()
}

func present(format string, args ...any) Finding {
	return Finding{Answer: Present, Detail: fmt.Sprintf(format, args...)}
}

func absent(todo, format string, args ...any) Finding {
	return Finding{Answer: Absent, Detail: fmt.Sprintf(format, args...), Todo: todo}
}

func inconclusive(err error) Finding { return Finding{Answer: Inconclusive, Detail: err.Error()} }
