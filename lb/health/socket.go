package health

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// setOptions prepares the socket of a probe before it is bound.
func setOptions(network, _ string, rc syscall.RawConn) error {
	var err error
	if e := rc.Control(func(fd uintptr) { err = setSocketOptions(int(fd), network) }); e != nil {
		return e
	}
	return err
}

func setSocketOptions(fd int, network string) error {
	// A socket that is bound to an address only gets its port from connect(2),
	// where one port will do for many backends.
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return err
	}
	switch network {
	case "udp4":
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
	case "udp6":
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	}
	if strings.HasPrefix(network, "tcp") {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	return nil
}
