package capture

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Free says whether a listening TCP socket could be had at addr, by binding one that never listens. The error is like
// Listen's.
func Free(addr netip.AddrPort) error {
	domain, sa, err := sockaddr(addr)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return Explain(fmt.Errorf("open socket: %w", err), "tcp", addr)
	}
	defer unix.Close(fd)
	for _, o := range listenOptions(domain, ListenParams{}) {
		if err := unix.SetsockoptInt(fd, o.level, o.name, 1); err != nil {
			return fmt.Errorf("set %s: %w", o.text, err)
		}
	}
	if err := unix.Bind(fd, sa); err != nil {
		return Explain(err, "tcp", addr)
	}
	return nil
}
