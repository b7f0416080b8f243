package relay

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/datagram"
)

// KeepAlive is when TCP asks whether a silent peer is still there, and when it
// gives one up. Idle is rounded up to seconds, of which the kernel takes 32,767.
type KeepAlive struct {
	Off      bool
	Idle     time.Duration // silence before the first question
	PeerLost time.Duration // how long data, or that question, may stay unacknowledged (TCP_USER_TIMEOUT)
}

// keepAliveOf is what a service asks for while its flows are in userspace.
func keepAliveOf(t lb.Timeouts) KeepAlive { return KeepAlive{Idle: t.KeepAlive, PeerLost: t.PeerLost} }

// interval is the time between two questions: a few of them fit into PeerLost.
func (k KeepAlive) interval() time.Duration { return min(k.Idle, k.PeerLost/4) }

// DialParams is how one connection to a backend is made. MPTCP is always off: a
// live flow could not be handed to the kernel with it.
type DialParams struct {
	Local       netip.AddrPort // zero address = the kernel's choice; port 0 = the kernel's choice
	Transparent bool           // Local is not an address of this host (IP_TRANSPARENT)
	Mark        uint32         // SO_MARK; 0 = none
	MSS         int            // largest segment, bytes; 0 = the kernel's choice
	KeepAlive   KeepAlive      // zero = the kernel's defaults, for now
}

// dialTCP starts a connection. It is in progress, or complete, when err is nil.
// Errors are bare errnos.
func dialTCP(p DialParams, to netip.AddrPort) (fd int, err error) {
	fd, err = unix.Socket(family(to.Addr()), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
			fd = -1
		}
	}()
	if err := p.apply(fd, to.Addr()); err != nil {
		return fd, err
	}
	if err := unix.Connect(fd, datagram.Sockaddr(to)); err != nil && err != unix.EINPROGRESS {
		return fd, err
	}
	return fd, nil
}

func (p DialParams) apply(fd int, to netip.Addr) error {
	if err := setStreamOptions(fd); err != nil {
		return err
	}
	if p.KeepAlive != (KeepAlive{}) {
		if err := p.KeepAlive.set(fd); err != nil {
			return err
		}
	}
	// Ports of connections in TIME_WAIT can then be bound again.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if p.Mark != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(p.Mark)); err != nil {
			return err
		}
	}
	if p.MSS != 0 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, p.MSS); err != nil {
			return err
		}
	}
	return p.bind(fd, to)
}

func (p DialParams) bind(fd int, to netip.Addr) error {
	if !p.Local.Addr().IsValid() && p.Local.Port() == 0 {
		return nil
	}
	local := p.Local
	if !local.Addr().IsValid() {
		local = netip.AddrPortFrom(unspecified(to), local.Port())
	}
	if p.Transparent {
		if err := setTransparent(fd, to); err != nil {
			return err
		}
	}
	if local.Port() == 0 {
		// The port is chosen by connect(2), where the kernel knows the other end
		// and can use one port towards many backends.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			return err
		}
	}
	return unix.Bind(fd, datagram.Sockaddr(local))
}

func setTransparent(fd int, a netip.Addr) error {
	if a.Is4() {
		return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)
	}
	return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
}

// setTCPOptions prepares a socket of either leg. Sockets accepted from a
// listener inherit all of these from it.
func setTCPOptions(fd int, k KeepAlive) error {
	if err := setStreamOptions(fd); err != nil {
		return err
	}
	return k.set(fd)
}

type sockOption struct{ level, name, value int }

func setOptions(fd int, options []sockOption) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("set socket option %d/%d to %d: %w", o.level, o.name, o.value, err)
		}
	}
	return nil
}

// streamOptions are for every socket from its first byte on.
var streamOptions = []sockOption{
	{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
	// Without this the kernel takes the urgent byte out of the stream (RFC 6093,
	// section 6): it would not arrive at the other side at all.
	{unix.SOL_SOCKET, unix.SO_OOBINLINE, 1},
}

func setStreamOptions(fd int) error {
	if err := setOptions(fd, streamOptions); err != nil {
		return err
	}
	if err := setLingerReset(fd, true); err != nil {
		return fmt.Errorf("make close a reset: %w", err)
	}
	return nil
}

// set has the kernel watch over the peer as k says.
func (k KeepAlive) set(fd int) error {
	on := 1
	if k.Off {
		on = 0
	}
	return setOptions(fd, []sockOption{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, on},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(k.Idle)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(k.interval())},
		// With this set the number of questions does not count (tcp_keepalive_timer).
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, userTimeout(k.PeerLost)},
	})
}

// userTimeout is a time as TCP_USER_TIMEOUT takes it: 0 is none.
func userTimeout(d time.Duration) int {
	return int((min(d, math.MaxInt32*time.Millisecond) + time.Millisecond - 1) / time.Millisecond)
}

// seconds rounds up, within what the kernel takes (MAX_TCP_KEEPIDLE and
// MAX_TCP_KEEPINTVL).
func seconds(d time.Duration) int {
	const most = 32767
	return int(max(1, (min(d, most*time.Second)+time.Second-1)/time.Second))
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func unspecified(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
