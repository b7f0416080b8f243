package datagram

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// Refuser tells senders that nobody takes their datagrams, as a host does whose
// port is closed: ICMP port unreachable (RFC 792, RFC 4443 section 3.1), from the
// address that was asked. It may be used by one goroutine. The zero value works.
type Refuser struct {
	fds     [2]int // raw sockets, of IPv4 and IPv6; 0 = not opened yet, -1 = cannot be
	budget  int
	since   time.Time
	buf     gopacket.SerializeBuffer
	control [64]byte
}

// refusalsPerSecond bounds how many are sent: whoever forges a sender's address
// must not get much for it (RFC 4443, section 2.4 (f)).
const refusalsPerSecond = 1000

// ErrRefusals says that no more refusals are sent just now.
var ErrRefusals = errors.New("too many refusals")

// Refuse tells client that asked takes none of its datagrams.
func (r *Refuser) Refuse(client, asked netip.AddrPort, now time.Time) error {
	if now.Sub(r.since) >= time.Second {
		r.since, r.budget = now, refusalsPerSecond
	}
	if r.budget == 0 {
		return ErrRefusals
	}
	r.budget--
	fd, err := r.socket(client.Addr())
	if err != nil {
		return fmt.Errorf("open raw socket: %w", err)
	}
	if r.buf == nil {
		r.buf = gopacket.NewSerializeBuffer()
	}
	if err := gopacket.SerializeLayers(r.buf, refusalOptions(asked), refusal(client, asked)...); err != nil {
		return fmt.Errorf("write ICMP: %w", err)
	}
	to := Sockaddr(netip.AddrPortFrom(client.Addr(), 0)) // a raw socket has no ports
	if _, err := unix.SendmsgN(fd, r.buf.Bytes(), appendSource(r.control[:0], asked.Addr()), to, unix.MSG_DONTWAIT); err != nil {
		return fmt.Errorf("send ICMP: %w", err)
	}
	return nil
}

// Close closes what has been opened.
func (r *Refuser) Close() {
	for i, fd := range r.fds {
		if fd > 0 {
			unix.Close(fd)
		}
		r.fds[i] = -1
	}
}

func (r *Refuser) socket(a netip.Addr) (int, error) {
	i, domain, proto := 0, unix.AF_INET, unix.IPPROTO_ICMP
	if a.Is6() {
		i, domain, proto = 1, unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	if r.fds[i] < 0 {
		return -1, unix.EPERM
	}
	if r.fds[i] > 0 {
		return r.fds[i], nil
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		r.fds[i] = -1
		return -1, err
	}
	if err := errors.Join(receiveNothing(fd), freeBind(fd, a)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	r.fds[i] = fd
	return fd, nil
}

// receiveNothing keeps what comes for a raw socket, which is every ICMP message to
// this host, out of its queue.
func receiveNothing(fd int) error {
	none := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &none[0]})
}

// freeBind lets a socket send from addresses that are local by a route alone.
func freeBind(fd int, a netip.Addr) error {
	if a.Is6() {
		return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
	}
	return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_FREEBIND, 1)
}

// refusal is the message: it quotes the head of a datagram from client to asked, by
// which the client's kernel finds the socket that has sent it.
func refusal(client, asked netip.AddrPort) []gopacket.SerializableLayer {
	udp := &layers.UDP{SrcPort: layers.UDPPort(client.Port()), DstPort: layers.UDPPort(asked.Port()), Length: udpHeader}
	if client.Addr().Is4() {
		ip := &layers.IPv4{
			Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolUDP, Length: 20 + udpHeader,
			SrcIP: client.Addr().AsSlice(), DstIP: asked.Addr().AsSlice(),
		}
		_ = udp.SetNetworkLayerForChecksum(ip) // it is one
		return []gopacket.SerializableLayer{
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodePort)}, ip, udp,
		}
	}
	return []gopacket.SerializableLayer{
		&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeDestinationUnreachable, layers.ICMPv6CodePortUnreachable)},
		gopacket.Payload(make([]byte, 4)), // unused
		&layers.IPv6{
			Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, Length: udpHeader,
			SrcIP: client.Addr().AsSlice(), DstIP: asked.Addr().AsSlice(),
		},
		udp,
	}
}

// udpHeader is its length.
const udpHeader = 8

// refusalOptions: the kernel computes the checksum of ICMPv6, and not that of ICMP.
func refusalOptions(asked netip.AddrPort) gopacket.SerializeOptions {
	return gopacket.SerializeOptions{ComputeChecksums: asked.Addr().Is4()}
}
