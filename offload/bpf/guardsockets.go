package bpf

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// Share makes a socket the one that answers at all frontends with AnswerShared of its protocol and family: a listening TCP
// socket, or a UDP socket that is bound and not connected. It stays the caller's, and leaves the guard when it is closed;
// such frontends then refuse. At the address that it is bound to itself it can no longer be reached.
func (g *Guard) Share(fd int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	if err := g.steerLocked(fd, 0); err != nil {
		return fmt.Errorf("share socket: %w", err)
	}
	return nil
}

// steerLocked puts a socket in its slot. kind is what its slot has beyond protocol and family.
func (g *Guard) steerLocked(fd int, kind guardSlot) error {
	bound, err := socketKey(fd)
	if err != nil {
		return err
	}
	slot := kind
	if bound.Proto == flow.UDP {
		slot |= guardSlotSLOT_UDP
	}
	if bound.Address.Addr().Is6() {
		slot |= guardSlotSLOT_IPV6
	}
	if err := g.objects.GuardSockets.Put(slot, uint64(fd)); err != nil {
		return fmt.Errorf("put %s in a sockmap: %w", bound, err)
	}
	key := frontendKey(bound)
	if last, ok := g.own[slot]; ok && last != key {
		if err := forget(g.objects.GuardFrontends, last); err != nil {
			return err
		}
	}
	g.own[slot] = key
	return g.putLocked(nil, map[lb.FrontendKey]Rule{bound: {All: AnswerRefuse}})
}

// socketKey tells what a socket is bound to.
func socketKey(fd int) (k lb.FrontendKey, err error) {
	proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return k, fmt.Errorf("read protocol: %w", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return k, fmt.Errorf("read local address: %w", err)
	}
	k.Proto = flow.Proto(proto)
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		k.Address = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		k.Address = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	default:
		return k, fmt.Errorf("neither IPv4 nor IPv6: %w", unix.EAFNOSUPPORT)
	}
	return k, nil
}

// openSilent opens the sockets that swallow.
func (g *Guard) openSilent() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, domain := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, typ := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
			fd, err := silentSocket(domain, typ)
			if errors.Is(err, unix.EAFNOSUPPORT) { // a kernel without IPv6 has none of its packets
				continue
			}
			if err != nil {
				return fmt.Errorf("open silent socket: %w", err)
			}
			g.silent = append(g.silent, fd)
			if err := g.steerLocked(fd, guardSlotSLOT_SILENT); err != nil {
				return err
			}
		}
	}
	return nil
}

// silentSocket opens a socket at a free port of the loopback address, with a filter that lets nothing in. The kernel drops
// what a filter keeps out without a word, a SYN for a listener included.
func silentSocket(domain, typ int) (fd int, err error) {
	fd, err = unix.Socket(domain, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocolOf(typ))
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	none := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	prog := unix.SockFprog{Len: uint16(len(none)), Filter: &none[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		return fd, fmt.Errorf("attach filter: %w", err)
	}
	if err := bindLoopback(fd, domain); err != nil {
		return fd, err
	}
	if typ == unix.SOCK_STREAM {
		return fd, unix.Listen(fd, 1)
	}
	return fd, nil
}

// protocolOf names TCP: a 0 may become MPTCP, whose sockets no sockmap takes.
func protocolOf(typ int) int {
	if typ == unix.SOCK_STREAM {
		return unix.IPPROTO_TCP
	}
	return unix.IPPROTO_UDP
}

// bindLoopback takes a free port of the loopback address, whether or not the device has it: nothing comes that way.
func bindLoopback(fd, domain int) error {
	level, option, sa := unix.IPPROTO_IP, unix.IP_FREEBIND, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if domain == unix.AF_INET6 {
		level, option, sa = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, &unix.SockaddrInet6{Addr: netip.IPv6Loopback().As16()}
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return fmt.Errorf("set freebind: %w", err)
	}
	return unix.Bind(fd, sa)
}

func (g *Guard) closeSilent() error {
	var errs []error
	for _, fd := range g.silent {
		errs = append(errs, unix.Close(fd))
	}
	g.silent = nil
	return errors.Join(errs...)
}
