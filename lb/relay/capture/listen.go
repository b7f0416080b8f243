package capture

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// DefaultBacklog is how many connections may wait to be accepted; the kernel caps it at net.core.somaxconn.
const DefaultBacklog = 4096

// ListenParams says how Listen makes a socket. The zero value of each field is the normal case.
type ListenParams struct {
	// AnyIP is set when the address is local by a route only. IPv6 then needs IPV6_FREEBIND to bind to it; IPv4 does not,
	// and without IP_FREEBIND a route that is missing shows at once.
	AnyIP bool

	Backlog   int  // connections; 0: DefaultBacklog
	ReusePort bool // share the port with other sockets that have SO_REUSEPORT too
}

// Listener is a listening TCP socket, wherever it came from. The descriptor is non-blocking and closed on exec.
type Listener struct {
	// Immutable.
	addr netip.AddrPort

	// mu guards what follows.
	mu sync.Mutex
	fd int // -1 after Close
}

// Listen makes a listening TCP socket at addr in the calling thread's namespace. IPv6 sockets take IPv6 only. The error,
// to which the caller adds the address, wraps ErrInUse, ErrAbsent, ErrPermission, ErrNoFamily, or another errno.
func Listen(addr netip.AddrPort, p ListenParams) (*Listener, error) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	fd, err := listen(addr, p)
	if err != nil {
		return nil, Explain(err, "tcp", addr)
	}
	if addr.Port() == 0 {
		if addr, err = localAddr(fd); err != nil {
			return nil, errors.Join(err, unix.Close(fd))
		}
	}
	return &Listener{addr: addr, fd: fd}, nil
}

func listen(addr netip.AddrPort, p ListenParams) (fd int, err error) {
	domain, sa, err := sockaddr(addr)
	if err != nil {
		return -1, err
	}
	// IPPROTO_TCP by name: an MPTCP socket (net.mptcp.enabled and some eBPF programs make one of 0) cannot be handed over.
	fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, fmt.Errorf("open socket: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
			fd = -1
		}
	}()
	for _, o := range listenOptions(domain, p) {
		if err := unix.SetsockoptInt(fd, o.level, o.name, 1); err != nil {
			return fd, fmt.Errorf("set %s: %w", o.text, err)
		}
	}
	if err := unix.Bind(fd, sa); err != nil {
		return fd, err
	}
	return fd, unix.Listen(fd, cmp.Or(p.Backlog, DefaultBacklog))
}

type option struct {
	level, name int
	text        string
}

// listenOptions gives the options to set to 1. TCP_DEFER_ACCEPT stays off: a client may wait for the server to speak.
func listenOptions(domain int, p ListenParams) []option {
	options := []option{{unix.SOL_SOCKET, unix.SO_REUSEADDR, "SO_REUSEADDR"}}
	if p.ReusePort {
		options = append(options, option{unix.SOL_SOCKET, unix.SO_REUSEPORT, "SO_REUSEPORT"})
	}
	if domain == unix.AF_INET6 {
		options = append(options, option{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, "IPV6_V6ONLY"})
		if p.AnyIP {
			options = append(options, option{unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, "IPV6_FREEBIND"})
		}
	}
	return options
}

func sockaddr(addr netip.AddrPort) (domain int, sa unix.Sockaddr, err error) {
	switch a := addr.Addr(); {
	case a.Is4():
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: a.As4()}, nil
	case a.Is6():
		sa := &unix.SockaddrInet6{Port: int(addr.Port()), Addr: a.As16()}
		if a.Zone() != "" {
			dev, err := net.InterfaceByName(a.Zone())
			if err != nil {
				return 0, nil, fmt.Errorf("find device of the zone: %w", err)
			}
			sa.ZoneId = uint32(dev.Index)
		}
		return unix.AF_INET6, sa, nil
	}
	return 0, nil, errors.New("invalid address")
}

// Explain translates the errno of a tcp or udp socket at addr that could not be had, once.
func Explain(err error, proto string, addr netip.AddrPort) error {
	host := addr.Addr().WithZone("")
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		if holder := holderOf(proto, addr); holder != "" {
			return fmt.Errorf("%w by %s", ErrInUse, holder)
		}
		return ErrInUse
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%w: configure it (ip addr add %s/%d dev lo), or use capture: anyip", ErrAbsent, host, host.BitLen())
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: a port below net.ipv4.ip_unprivileged_port_start needs CAP_NET_BIND_SERVICE: %w",
			ErrPermission, err)
	case errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("%w: %w", ErrNoFamily, err)
	}
	return err
}

// NewListenerFromFD takes over a descriptor that was inherited or handed over. It must be a listening TCP socket (not an
// MPTCP one), else the error wraps ErrNotListening and the descriptor stays the caller's.
func NewListenerFromFD(fd int) (*Listener, error) {
	if err := checkListening(fd); err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	addr, err := localAddr(fd)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("descriptor %d: set non-blocking: %w", fd, err)
	}
	return &Listener{addr: addr, fd: fd}, nil
}

func checkListening(fd int) error {
	for _, want := range []struct {
		option, value int
		otherwise     string
	}{
		{unix.SO_TYPE, unix.SOCK_STREAM, "not a stream socket"},
		{unix.SO_PROTOCOL, unix.IPPROTO_TCP, "not of protocol TCP"},
		{unix.SO_ACCEPTCONN, 1, "listen was not called"},
	} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want.option)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotListening, err)
		}
		if got != want.value {
			return fmt.Errorf("%w: %s", ErrNotListening, want.otherwise)
		}
	}
	return nil
}

func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read local address: %w", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("%w: neither IPv4 nor IPv6", ErrNotListening)
}

// FD gives the descriptor, which stays the Listener's; -1 after Close.
func (l *Listener) FD() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fd
}

// Addr gives the address the socket is bound to, without a zone.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Share gives a second Listener of the same socket with a descriptor of its own. The port is free when all are closed.
func (l *Listener) Share() (*Listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fd, err := unix.FcntlInt(uintptr(l.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("tcp %s: share: %w", l.addr, err)
	}
	return &Listener{addr: l.addr, fd: fd}, nil
}

// Close closes the descriptor. Connections that wait to be accepted are reset with the last one of the socket.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd < 0 {
		return nil
	}
	fd := l.fd
	l.fd = -1
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("tcp %s: close: %w", l.addr, err)
	}
	return nil
}
