package datagram

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Failure is what the network said about a datagram that was sent.
type Failure struct {
	To    netip.AddrPort // where it was sent
	Local netip.Addr     // from where, with SocketParams.PacketInfo, else the zero value
	Err   unix.Errno     // ECONNREFUSED, EHOSTUNREACH, EMSGSIZE, …
}

// ReadError takes one entry off the error queue of a socket with
// SocketParams.Errors (ip(7), IP_RECVERR). It reports false when there is none.
func ReadError(fd int) (f Failure, ok bool) {
	var (
		name    Name
		control [256]byte
	)
	h := unix.Msghdr{Name: (*byte)(unsafe.Pointer(&name.raw)), Namelen: unix.SizeofSockaddrInet6, Control: &control[0]}
	h.SetControllen(len(control))
	_, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&h)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if errno != 0 {
		return Failure{}, false
	}
	f.To = name.AddrPort()
	for c, rest, ok := cutControl(control[:h.Controllen]); ok; c, rest, ok = cutControl(rest) {
		f.parseControl(&c)
	}
	return f, true
}

func (f *Failure) parseControl(c *control) {
	const extended = int(unsafe.Sizeof(unix.SockExtendedErr{}))
	switch {
	case c.is(unix.SOL_IP, unix.IP_RECVERR, extended), c.is(unix.SOL_IPV6, unix.IPV6_RECVERR, extended):
		f.Err = unix.Errno(binary.NativeEndian.Uint32(c.data)) // ee_errno
	case c.is(unix.SOL_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo):
		f.Local = netip.AddrFrom4([4]byte(c.data[8:])) // ipi_addr: where the ICMP message went
	case c.is(unix.SOL_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo):
		f.Local = netip.AddrFrom16([16]byte(c.data)).Unmap()
	}
}
