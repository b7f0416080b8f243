package testnet

import (
	"fmt"
	"os"
	"strings"
)

// Sysctl sets a sysctl of the host, named with dots or slashes ("net/ipv4/conf/
// eth0.1/forwarding" for a device with a dot in its name). Only those under net
// belong to a namespace; any other is refused.
func (h *Host) Sysctl(key, value string) {
	h.t.Helper()
	if err := h.writeSysctl(key, value); err != nil {
		h.t.Fatalf("host %s: %v", h.name, err)
	}
}

// Forwarding makes the host a router for both families, or no longer one.
func (h *Host) Forwarding(on bool) {
	h.t.Helper()
	value := "0"
	if on {
		value = "1"
	}
	h.Sysctl("net.ipv4.ip_forward", value)
	h.Sysctl("net.ipv6.conf.all.forwarding", value)
}

func (h *Host) writeSysctl(key, value string) error {
	path, err := sysctlPath(key)
	if err != nil {
		return err
	}
	// /proc/sys/net is that of the thread that opens it.
	var inner error
	err = inNamespace(h.ns, func() {
		inner = os.WriteFile(path, []byte(value), 0)
	})
	if err == nil {
		err = inner
	}
	if err != nil {
		return fmt.Errorf("set sysctl %s: %w", key, err)
	}
	return nil
}

func sysctlPath(key string) (string, error) {
	if !strings.Contains(key, "/") {
		key = strings.ReplaceAll(key, ".", "/")
	}
	if !strings.HasPrefix(key, "net/") || strings.Contains(key, "..") {
		return "", fmt.Errorf("sysctl %s belongs to the machine, not to a namespace", key)
	}
	return "/proc/sys/" + key, nil
}
