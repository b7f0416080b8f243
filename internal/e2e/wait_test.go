package e2e

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// waitSent waits until the peer has acknowledged everything: a reset right after
// a write throws away what was not sent yet.
func waitSent(c net.Conn) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return
	}
	for range 2000 {
		left := 0
		_ = raw.Control(func(fd uintptr) { left, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		if left == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
