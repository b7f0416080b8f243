package offload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// resetter sends TCP resets for connections that have no socket. The sockets belong to
// the network namespace of whoever opened it.
type resetter struct{ v4, v6 int }

func openResetter() (_ *resetter, err error) {
	r := &resetter{v4: -1, v6: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	// IPPROTO_RAW sends only, and takes the IP header from us (raw(7); ipv6(7) too).
	if r.v4, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW); err != nil {
		return nil, fmt.Errorf("open raw socket: %w", err)
	}
	r.v6, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		r.v6, err = -1, nil // a host without IPv6
	}
	if err != nil {
		return nil, fmt.Errorf("open raw socket: %w", err)
	}
	return r, nil
}

// send sends a reset from one end of a connection to the other, which expects seq
// next.
func (r *resetter) send(from, to netip.AddrPort, seq uint32) error {
	if err := r.sendPacket(to, segment(from, to, seq, flagRST)); err != nil {
		return fmt.Errorf("send reset to %s: %w", to, err)
	}
	return nil
}

func (r *resetter) sendPacket(to netip.AddrPort, p []byte) error {
	var err error
	if to.Addr().Is4() {
		err = unix.Sendto(r.v4, p, 0, &unix.SockaddrInet4{Addr: to.Addr().As4()})
	} else {
		err = unix.Sendto(r.v6, p, 0, &unix.SockaddrInet6{Addr: to.Addr().As16()})
	}
	return err
}

func (r *resetter) close() error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, fd := range []int{r.v4, r.v6} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

const (
	ip4Header = 20
	ip6Header = 40
	tcpHeader = 20

	flagRST = 1 << 2
	flagACK = 1 << 4
)

// segment is an IP packet with a TCP header. Identification and checksum of an IPv4
// header are the kernel's.
func segment(from, to netip.AddrPort, seq uint32, flags byte) []byte {
	be := binary.BigEndian
	var p []byte
	if to.Addr().Is4() {
		p = make([]byte, ip4Header+tcpHeader)
		p[0] = 4<<4 | ip4Header/4
		be.PutUint16(p[2:], uint16(len(p)))
		p[6] = 1 << 6 // don't fragment
		p[8], p[9] = 64, unix.IPPROTO_TCP
	} else {
		p = make([]byte, ip6Header+tcpHeader)
		p[0] = 6 << 4
		be.PutUint16(p[4:], tcpHeader)
		p[6], p[7] = unix.IPPROTO_TCP, 64
	}
	addrs := p[len(p)-tcpHeader-2*len(to.Addr().AsSlice()) : len(p)-tcpHeader]
	copy(addrs, from.Addr().AsSlice())
	copy(addrs[len(addrs)/2:], to.Addr().AsSlice())
	tcp := p[len(p)-tcpHeader:]
	be.PutUint16(tcp, from.Port())
	be.PutUint16(tcp[2:], to.Port())
	be.PutUint32(tcp[4:], seq)
	tcp[12], tcp[13] = tcpHeader/4<<4, flags
	be.PutUint16(tcp[16:], tcpChecksum(addrs, tcp))
	return p
}

// tcpChecksum is that of a header without payload (RFC 9293, section 3.1).
func tcpChecksum(addrs, tcp []byte) uint16 {
	sum := uint32(unix.IPPROTO_TCP) + uint32(len(tcp))
	for _, b := range [][]byte{addrs, tcp} {
		for i := 0; i < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
