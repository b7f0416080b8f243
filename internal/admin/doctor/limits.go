package doctor

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// What is enough for a busy balancer.
const (
	fewDescriptors = 4096
	fewBacklog     = 1024
	fewPorts       = 10_000

	otherDescriptors = 64 // those that are not connections
)

// probeDescriptors looks at the hard limit: a Go program raises its own up to
// there by itself.
func probeDescriptors(*host) Finding {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return inconclusive(fmt.Errorf("read the descriptor limit: %w", err))
	}
	n := min(r.Max, 1<<30)
	conns := (max(n, otherDescriptors) - otherDescriptors) / 2
	if n < fewDescriptors {
		return absent("raise it: ulimit -Hn, or LimitNOFILE= of the unit", "%d: about %d connections at once", n, conns)
	}
	return present("%d: about %d connections at once (two each)", n, conns)
}

func probeBacklog(h *host) Finding {
	n, err := h.sysctls("net/core/somaxconn")
	if err != nil {
		return inconclusive(err)
	}
	if n[0] < fewBacklog {
		return absent("sysctl -w net.core.somaxconn=4096", "%d connections may wait for a frontend: few for bursts", n[0])
	}
	return present("%d connections may wait for a frontend", n[0])
}

func probeLocalPorts(h *host) Finding {
	n, err := h.sysctls("net/ipv4/ip_local_port_range")
	if err == nil && len(n) != 2 {
		err = fmt.Errorf("ip_local_port_range has %d numbers", len(n))
	}
	if err != nil {
		return inconclusive(err)
	}
	ports := n[1] - n[0] + 1
	const says = "%d-%d: %d connections to one backend from one source address"
	if ports < fewPorts {
		return absent("widen net.ipv4.ip_local_port_range, or give source.addresses", says, n[0], n[1], ports)
	}
	return present(says, n[0], n[1], ports)
}

func probeNonlocalBind(h *host) Finding {
	four, six := h.nonlocalBind(false), h.nonlocalBind(true)
	switch {
	case four && six:
		return present("bind takes addresses that are not configured")
	case four:
		return present("bind takes IPv4 addresses that are not configured")
	case six:
		return present("bind takes IPv6 addresses that are not configured")
	}
	return absent("nothing to do: capture auto and anyip do not need it", "capture bind takes configured addresses only")
}

func (h *host) nonlocalBind(ipv6 bool) bool {
	name := "net/ipv4/ip_nonlocal_bind"
	if ipv6 {
		name = "net/ipv6/ip_nonlocal_bind"
	}
	n, err := h.sysctls(name)
	return err == nil && n[0] != 0
}

func probeIPv6(h *host) Finding {
	const todo = "enable IPv6 if frontends or backends have such addresses"
	n, err := h.sysctls("net/ipv6/conf/all/disable_ipv6")
	if errors.Is(err, fs.ErrNotExist) {
		return absent(todo, "this kernel was started without IPv6")
	}
	if err != nil {
		return inconclusive(err)
	}
	if n[0] != 0 {
		return absent(todo+" (sysctl -w net.ipv6.conf.all.disable_ipv6=0)", "IPv6 is switched off in this network namespace")
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return absent(todo, "no IPv6 sockets: %v", err)
	}
	unix.Close(fd)
	return present("on")
}

func probeKeepalive(h *host) Finding {
	var v [3]int
	for i, name := range []string{"net/ipv4/tcp_keepalive_time", "net/ipv4/tcp_keepalive_intvl", "net/ipv4/tcp_keepalive_probes"} {
		n, err := h.sysctls(name)
		if err != nil {
			return inconclusive(err)
		}
		v[i] = n[0]
	}
	return present("the host's own is %d s, then %d times every %d s; each connection sets its own", v[0], v[2], v[1])
}
