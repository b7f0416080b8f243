package datagram

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Name is a socket address as the kernel writes it (sockaddr_in, sockaddr_in6).
// Answers are sent back to a Name without being parsed.
type Name struct {
	raw unix.RawSockaddrInet6
	len uint32
}

// NewName makes the Name of an address.
func NewName(a netip.AddrPort) (n Name) {
	if a.Addr().Is4() {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&n.raw))
		v4.Family, v4.Addr = unix.AF_INET, a.Addr().As4()
		v4.Port = htons(a.Port())
		n.len = unix.SizeofSockaddrInet4
		return n
	}
	n.raw.Family, n.raw.Addr, n.raw.Port = unix.AF_INET6, a.Addr().As16(), htons(a.Port())
	n.len = unix.SizeofSockaddrInet6
	return n
}

// Equal reports whether both are the same address, port and zone.
func (n *Name) Equal(o *Name) bool {
	if n.len == unix.SizeofSockaddrInet4 && o.len == n.len { // the kernel leaves the rest as it was
		return *(*unix.RawSockaddrInet4)(unsafe.Pointer(&n.raw)) == *(*unix.RawSockaddrInet4)(unsafe.Pointer(&o.raw))
	}
	return *n == *o
}

// AddrPort parses the Name; IPv4-mapped addresses are unmapped.
func (n *Name) AddrPort() netip.AddrPort {
	if n.raw.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&n.raw))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), htons(v4.Port))
	}
	return netip.AddrPortFrom(netip.AddrFrom16(n.raw.Addr).Unmap(), htons(n.raw.Port))
}

// htons turns a port between host and network byte order, either way.
func htons(p uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], p)
	return binary.NativeEndian.Uint16(b[:])
}
