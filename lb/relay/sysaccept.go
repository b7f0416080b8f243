package relay

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// acceptConn is accept4(2) without what unix.Accept4 does besides: it asks each
// new socket for its protocol, one more system call, and allocates the address.
func acceptConn(listener int) (fd int, peer netip.AddrPort, err error) {
	var sa unix.RawSockaddrInet6 // large enough for IPv4 too
	size := uint32(unix.SizeofSockaddrInet6)
	n, _, errno := unix.Syscall6(unix.SYS_ACCEPT4, uintptr(listener), uintptr(unsafe.Pointer(&sa)),
		uintptr(unsafe.Pointer(&size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, netip.AddrPort{}, errno
	}
	return int(n), peerOf(&sa), nil
}

// peerOf reads what the kernel wrote: ports, and IPv4 addresses in the place of
// the flow label, are in network byte order.
func peerOf(sa *unix.RawSockaddrInet6) netip.AddrPort {
	var port [2]byte
	binary.NativeEndian.PutUint16(port[:], sa.Port)
	if sa.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), binary.BigEndian.Uint16(port[:]))
	}
	return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), binary.BigEndian.Uint16(port[:]))
}
