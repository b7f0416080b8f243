package datagram

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// SocketParams is how a UDP socket is made. The zero value of each field is the
// normal case.
type SocketParams struct {
	Local       netip.AddrPort // bound to; the zero value is not bound
	Freebind    bool           // Local may be local by a route only (IPv6)
	ReusePort   bool           // share Local with other sockets of this process
	ReuseAddr   bool
	Transparent bool // Local may be an address of another host (IP_TRANSPARENT)
	PacketInfo  bool // tell the local address of each datagram: for wildcard sockets
	Errors      bool // queue ICMP errors (IP_RECVERR): see ReadError
	Deaf        bool // throw away what comes, until Listen
	ReceiveSize int  // bytes of receive queue; 0 = the kernel's default
	SendSize    int
}

// NewSocket makes a socket of the family of addr, or of p.Local. Datagrams are
// sent whatever their size: the kernel and routers may fragment them
// (IP_PMTUDISC_DONT). Errors wrap an errno.
func NewSocket(p SocketParams, like netip.Addr) (fd int, err error) {
	family := unix.AF_INET6
	if like.Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return -1, fmt.Errorf("make a UDP socket: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
			fd = -1
		}
	}()
	for _, o := range p.options(family) {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil && !o.optional {
			return fd, fmt.Errorf("set option %d/%d of a UDP socket: %w", o.level, o.name, err)
		}
	}
	if p.Deaf {
		if err := deafen(fd); err != nil {
			return fd, fmt.Errorf("deafen a UDP socket: %w", err)
		}
	}
	if p.Local.IsValid() {
		if err := unix.Bind(fd, Sockaddr(p.Local)); err != nil {
			return fd, fmt.Errorf("bind a UDP socket to %s: %w", p.Local, err)
		}
	}
	return fd, nil
}

// deafen attaches a filter that lets no byte through. To the sender that looks
// like a loss, not like a closed port.
func deafen(fd int) error {
	none := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &none[0]})
}

// Listen ends the deafness of a socket, if it is deaf.
func Listen(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != nil && err != unix.ENOENT {
		return fmt.Errorf("take the filter off a UDP socket: %w", err)
	}
	return nil
}

// LocalAddr is the address that a socket is bound to.
func LocalAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read the address of a UDP socket: %w", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("read the address of a UDP socket: family %T", sa)
}

// Connect sets the only peer of a socket: what others send is not received. The
// error is an errno; a lack of free ports is EADDRNOTAVAIL, which connect(2) calls
// EAGAIN where it has to bind first.
func Connect(fd int, to netip.AddrPort) error {
	err := unix.Connect(fd, Sockaddr(to))
	if err == unix.EAGAIN {
		return unix.EADDRNOTAVAIL
	}
	return err
}

type option struct {
	level, name, value int
	optional           bool
}

func (p SocketParams) options(family int) []option {
	v4 := family == unix.AF_INET
	pick := func(four, six option) option {
		if v4 {
			return four
		}
		return six
	}
	opts := []option{
		pick(option{unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT, false},
			option{unix.SOL_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT, false}),
		{unix.SOL_UDP, unix.UDP_GRO, 1, true},
	}
	if !v4 {
		opts = append(opts, option{unix.SOL_IPV6, unix.IPV6_V6ONLY, 1, false})
	}
	on := func(want bool, o option) {
		if want {
			opts = append(opts, o)
		}
	}
	on(p.Freebind, pick(option{unix.SOL_IP, unix.IP_FREEBIND, 1, false}, option{unix.SOL_IPV6, unix.IPV6_FREEBIND, 1, false}))
	on(p.Transparent, pick(option{unix.SOL_IP, unix.IP_TRANSPARENT, 1, false}, option{unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1, false}))
	on(p.ReusePort, option{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, false})
	on(p.ReuseAddr, option{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, false})
	on(p.PacketInfo, pick(option{unix.SOL_IP, unix.IP_PKTINFO, 1, false}, option{unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1, false}))
	on(p.Errors, pick(option{unix.SOL_IP, unix.IP_RECVERR, 1, false}, option{unix.SOL_IPV6, unix.IPV6_RECVERR, 1, false}))
	// FORCE wants CAP_NET_ADMIN and goes beyond net.core.rmem_max; without it
	// the kernel gives what it allows.
	on(p.ReceiveSize > 0, option{unix.SOL_SOCKET, unix.SO_RCVBUF, p.ReceiveSize, true})
	on(p.ReceiveSize > 0, option{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, p.ReceiveSize, true})
	on(p.SendSize > 0, option{unix.SOL_SOCKET, unix.SO_SNDBUF, p.SendSize, true})
	on(p.SendSize > 0, option{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, p.SendSize, true})
	return opts
}

// Sockaddr is a in the form of the unix package.
func Sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
