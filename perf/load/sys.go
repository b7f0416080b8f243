package load

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of the data path. All sockets are non-blocking, so none of
// these but epollWait waits; the scheduler need not hear of them. An interrupted
// one is begun again by whoever finds its socket still ready.

func sysRead(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return count(n, e), e
}

func sysWrite(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return count(n, e), e
}

// sysDiscard takes up to len(b) bytes from a TCP socket without copying them.
func sysDiscard(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_TRUNC, 0, 0)
	return count(n, e), e
}

func sysSocket(family, kind int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family), uintptr(kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC), 0)
	if e != 0 {
		return -1, e
	}
	return int(n), 0
}

func sysConnect(fd int, to *sockaddr) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&to.raw)), uintptr(to.size))
	return e
}

func sysBind(fd int, to *sockaddr) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&to.raw)), uintptr(to.size))
	return e
}

func sysAccept(fd int, from *sockaddr) (int, unix.Errno) {
	from.size = uint32(unsafe.Sizeof(from.raw))
	n, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&from.raw)),
		uintptr(unsafe.Pointer(&from.size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return -1, e
	}
	return int(n), 0
}

func sysClose(fd int) {
	_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
}

// epollWait waits for events, at most ms milliseconds. To the scheduler it is a
// goroutine that computes; so ms is also how long a stop of the world may take.
func epollWait(epfd int, events []unix.EpollEvent, ms int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(ms), 0, 0)
	return count(n, e), e
}

// mmsghdr is struct mmsghdr (sendmmsg(2)).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   uint32
}

func sysRecvmmsg(fd int, m []mmsghdr) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(m))), uintptr(len(m)), 0, 0, 0)
	return count(n, e), e
}

func sysSendmmsg(fd int, m []mmsghdr) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(m))), uintptr(len(m)), 0, 0, 0)
	return count(n, e), e
}

func count(n uintptr, e unix.Errno) int {
	if e != 0 {
		return 0
	}
	return int(n)
}

// sockaddr is an address as the kernel reads and writes it.
type sockaddr struct {
	raw  unix.RawSockaddrInet6 // the larger of the two families
	size uint32
}

func newSockaddr(a netip.AddrPort) *sockaddr {
	s := new(sockaddr)
	// The port is in network byte order, at the same place in both families.
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&s.raw.Port))[:], a.Port())
	if a.Addr().Is4() {
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		in.Family, in.Addr, s.size = unix.AF_INET, a.Addr().As4(), unix.SizeofSockaddrInet4
		return s
	}
	s.raw.Family, s.raw.Addr, s.size = unix.AF_INET6, a.Addr().As16(), unix.SizeofSockaddrInet6
	return s
}

// addr is the address without the port.
func (s *sockaddr) addr() netip.Addr {
	switch s.raw.Family {
	case unix.AF_INET:
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw)).Addr)
	case unix.AF_INET6:
		return netip.AddrFrom16(s.raw.Addr)
	}
	return netip.Addr{}
}

func (s *sockaddr) family() int { return int(s.raw.Family) }
