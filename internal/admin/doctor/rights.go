package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// firstKernel is the first version on which everything in userspace works.
var firstKernel = [2]int{5, 10}

func probeKernel(h *host) Finding {
	text, err := h.sysctl("kernel/osrelease")
	if err != nil {
		return inconclusive(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(text, "%d.%d", &major, &minor); err != nil {
		return inconclusive(fmt.Errorf("kernel version %q: %w", text, err))
	}
	if major < firstKernel[0] || major == firstKernel[0] && minor < firstKernel[1] {
		return absent(fmt.Sprintf("use Linux %d.%d or later", firstKernel[0], firstKernel[1]), "Linux %s", text)
	}
	return present("Linux %s", text)
}

func probeRoot(*host) Finding {
	if uid := os.Geteuid(); uid != 0 {
		return absent("run as root, or give the capabilities below", "uid %d; what needs no root works", uid)
	}
	return present("uid 0")
}

// capability is the finding about one capability: what it is needed for.
func (h *host) capability(c int, name, uses, todo string) Finding {
	switch {
	case h.capsErr != nil:
		return inconclusive(h.capsErr)
	case h.has(c):
		return present("%s", uses)
	case todo == "":
		todo = fmt.Sprintf("run as root, or setcap %s+ep on the binary, if you need it", strings.ToLower(name))
	}
	return absent(todo, "no: %s", uses)
}

func probeNetAdmin(h *host) Finding {
	return h.capability(unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "routes for VIPs that are not configured (anyip), the guard, handoffs", "")
}

// probePerfmon is about the verifier, which is stricter without it.
func probePerfmon(h *host) Finding {
	if h.capsErr == nil && !h.has(unix.CAP_PERFMON) && h.has(unix.CAP_SYS_ADMIN) {
		return present("CAP_SYS_ADMIN stands for it: handoffs")
	}
	return h.capability(unix.CAP_PERFMON, "CAP_PERFMON", "handoffs", "")
}

// probeBPF knows that before Linux 5.8 CAP_SYS_ADMIN stands for it, and still does.
func probeBPF(h *host) Finding {
	if h.capsErr == nil && !h.has(unix.CAP_BPF) && h.has(unix.CAP_SYS_ADMIN) {
		return present("CAP_SYS_ADMIN stands for it: the guard, handoffs")
	}
	return h.capability(unix.CAP_BPF, "CAP_BPF", "the guard, handoffs", "")
}

func probeSysAdmin(h *host) Finding {
	if pins := filepath.Join(h.o.StateDir, "bpf"); h.o.StateDir != "" && isBPFFS(pins) {
		return present("not needed: there is a bpffs at %s", pins)
	}
	return h.capability(unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "a bpffs of our own, in which offloaded flows outlive the process",
		"mount a bpffs at \"bpf\" in the state directory beforehand; or nothing: offloaded flows end with the process")
}

// isBPFFS reports whether a directory is of a BPF file system.
func isBPFFS(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.BPF_FS_MAGIC
}

func probeNetBind(h *host) Finding {
	first := h.firstFreePort()
	if first <= 1 {
		return present("not needed: every port is free to use")
	}
	return h.capability(unix.CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE", fmt.Sprintf("frontends at ports below %d", first), "")
}

func probeNetRaw(h *host) Finding {
	return h.capability(unix.CAP_NET_RAW, "CAP_NET_RAW", "handoffs: resets that end a flow in the kernel", "")
}

func probeSysResource(h *host) Finding {
	return h.capability(unix.CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE", "a descriptor limit above the hard one",
		"nothing to do while the descriptor limit is high enough")
}

func probeNamespace(h *host) Finding {
	name, err := os.Readlink(filepath.Join(h.proc, "thread-self", "ns", "net"))
	if err != nil {
		return inconclusive(fmt.Errorf("read the network namespace: %w", err))
	}
	return present("%s", name)
}

func probeInstance(h *host) Finding {
	switch {
	case h.holderErr != nil:
		return inconclusive(h.holderErr)
	case h.held && h.holder.PID == os.Getpid():
		return present("this one, pid %d", h.holder.PID)
	case h.held:
		return present("%s holds this network namespace", h.holder)
	}
	return absent("baton run --config FILE", "no instance runs in this network namespace")
}

// probeStateDir asks the kernel whether files could be made there, or in the
// nearest directory above that exists.
func probeStateDir(h *host) Finding {
	dir := h.o.StateDir
	if dir == "" {
		return Finding{Answer: Inconclusive, Detail: "not asked for"}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return inconclusive(err)
	}
	at := dir
	for {
		err := unix.Faccessat(unix.AT_FDCWD, at, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
		switch {
		case err == nil && at == dir:
			return present("%s can be written to", dir)
		case err == nil:
			return present("%s can be made in %s", dir, at)
		case errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at):
			at = filepath.Dir(at)
			continue
		}
		return absent("make it writable, or name another with --state-dir", "%s: %v", at, err)
	}
}
