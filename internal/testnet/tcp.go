package testnet

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// TCPSpec is how a host speaks TCP from now on. The zero value is what a fresh
// host does.
type TCPSpec struct {
	NoTimestamps    bool // RFC 7323
	NoSACK          bool // RFC 2018
	NoWindowScaling bool // RFC 7323
	ECN             bool // asks for it (RFC 3168); default: agrees when asked
	ReceiveMax      int  // bytes, the largest receive buffer, from which the window scale follows; default: the kernel's
}

// TCP sets how new connections of the host speak.
func (h *Host) TCP(s TCPSpec) {
	h.t.Helper()
	for _, v := range []struct {
		key string
		on  bool
	}{
		{"net.ipv4.tcp_timestamps", !s.NoTimestamps},
		{"net.ipv4.tcp_sack", !s.NoSACK},
		{"net.ipv4.tcp_window_scaling", !s.NoWindowScaling},
	} {
		value := "0"
		if v.on {
			value = "1"
		}
		h.Sysctl(v.key, value)
	}
	ecn := "2"
	if s.ECN {
		ecn = "1"
	}
	h.Sysctl("net.ipv4.tcp_ecn", ecn)
	if s.ReceiveMax > 0 {
		h.Sysctl("net.ipv4.tcp_rmem", fmt.Sprintf("4096 131072 %d", s.ReceiveMax))
	}
}

// MaxWindowScale is the largest shift (RFC 7323, 2.3).
const MaxWindowScale = 14

// Control sets options of a socket before it connects or listens: a net.Dialer's,
// or a net.ListenConfig's.
type Control = func(network, address string, c syscall.RawConn) error

// WindowScale makes a socket announce this scale for what it receives, 0 to
// MaxWindowScale. The host's ReceiveMax must allow it: 32 KiB << scale.
func WindowScale(scale int) Control {
	return setsockopt(unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, 32<<10<<scale)
}

// ReceiveBuffer makes a socket's receive buffer that many bytes, for good: its
// window opens no further.
func ReceiveBuffer(size int) Control {
	return setsockopt(unix.SOL_SOCKET, unix.SO_RCVBUF, size)
}

func setsockopt(level, option, value int) Control {
	return func(_, _ string, c syscall.RawConn) error {
		var inner error
		if err := c.Control(func(fd uintptr) { inner = unix.SetsockoptInt(int(fd), level, option, value) }); err != nil {
			return err
		}
		if inner != nil {
			return fmt.Errorf("set socket option %d of level %d: %w", option, level, inner)
		}
		return nil
	}
}
