package offload

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is a connected TCP socket whose bytes stand still. The calls below do not
// let the Go scheduler take the processor away from the calling thread: between the
// freeze of a flow and the end of it every microsecond is silence for two peers.
// None of them blocks.
type socket int

// tcpInfo is TCP_INFO (struct tcp_info).
type tcpInfo struct{ unix.TCPInfo }

// scales are the two nibbles after tcpi_options, which x/sys has no field for.
func (i *tcpInfo) scales() byte {
	return (*[8]byte)(unsafe.Pointer(&i.TCPInfo))[6]
}

// sendScale is how far the peer's window fields are shifted, receiveScale how far
// ours are: 0 when scaling was not negotiated (RFC 7323, section 2).
func (i *tcpInfo) sendScale() int8    { return int8(i.scales() & 0xf) }
func (i *tcpInfo) receiveScale() int8 { return int8(i.scales() >> 4) }

func (i *tcpInfo) has(option uint8) bool { return i.Options&option != 0 }

// What tcpi_options says was negotiated (linux/tcp.h).
const (
	optTimestamps   = 1 << 0
	optSACK         = 1 << 1
	optECN          = 1 << 3
	optECNSeen      = 1 << 4
	optSYNData      = 1 << 5
	optMicroseconds = 1 << 6 // timestamps
)

func (s socket) get(level, name int, value unsafe.Pointer, size uintptr) error {
	n := uint32(size)
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(s), uintptr(level), uintptr(name),
		uintptr(value), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (s socket) getInt(level, name int) (int, error) {
	var v int32
	err := s.get(level, name, unsafe.Pointer(&v), unsafe.Sizeof(v))
	return int(v), err
}

func (s socket) setInt(level, name, value int) error {
	v := int32(value)
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(s), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&v)), unsafe.Sizeof(v), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (s socket) info(i *tcpInfo) error {
	if err := s.get(unix.IPPROTO_TCP, unix.TCP_INFO, unsafe.Pointer(i), unsafe.Sizeof(*i)); err != nil {
		return fmt.Errorf("read TCP_INFO: %w", err)
	}
	return nil
}

func (s socket) ioctlInt(request uint) (int, error) {
	var v int32
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(s), uintptr(request), uintptr(unsafe.Pointer(&v)))
	if errno != 0 {
		return 0, errno
	}
	return int(v), nil
}

// unread is how many bytes wait to be read, unacknowledged how many its peer has
// yet to acknowledge.
func (s socket) unread() (int, error)         { return s.ioctlInt(unix.SIOCINQ) }
func (s socket) unacknowledged() (int, error) { return s.ioctlInt(unix.SIOCOUTQ) }

// memory is what the socket holds of received packets, those in the out-of-order
// queue and the backlog included: bytes of memory, not of payload. There is no
// other way to see the out-of-order queue.
func (s socket) memory() (int, error) {
	const receive, backlog = 0, 7 // SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_BACKLOG
	var v [9]uint32
	if err := s.get(unix.SOL_SOCKET, unix.SO_MEMINFO, unsafe.Pointer(&v), unsafe.Sizeof(v)); err != nil {
		return 0, fmt.Errorf("read SO_MEMINFO: %w", err)
	}
	return int(v[receive]) + int(v[backlog]), nil
}

// read reads into b without blocking. It must be called only when there is
// something to read: else it would consume the error of a reset, and whoever owns
// the flow afterwards would take that for an orderly end.
func (s socket) read(b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// write writes what there is room for.
func (s socket) write(b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
