package datagram

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Failure is what the network said about a datagram that was sent.
type Failure struct {
	To  netip.AddrPort // where it was sent
	Err unix.Errno     // ECONNREFUSED, EHOSTUNREACH, EMSGSIZE, …
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
	for b := control[:h.Controllen]; len(b) >= unix.SizeofCmsghdr; {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		size := int(c.Len)
		if size < unix.SizeofCmsghdr || size > len(b) {
			break
		}
		recverr := c.Level == unix.SOL_IP && c.Type == unix.IP_RECVERR || c.Level == unix.SOL_IPV6 && c.Type == unix.IPV6_RECVERR
		if recverr && size >= unix.CmsgLen(int(unsafe.Sizeof(unix.SockExtendedErr{}))) {
			f.Err = unix.Errno((*unix.SockExtendedErr)(unsafe.Pointer(&b[unix.CmsgLen(0)])).Errno)
		}
		b = b[min(len(b), unix.CmsgSpace(size-unix.CmsgLen(0))):]
	}
	return f, true
}
