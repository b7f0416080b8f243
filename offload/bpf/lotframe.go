package bpf

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

// lotKey is the source and destination of a parked packet, as it arrived. Addresses of IPv4 are plain.
type lotKey struct {
	proto    flow.Proto
	from, to netip.AddrPort
}

func newLotKey(proto flow.Proto, from, to netip.AddrPort) lotKey {
	return lotKey{proto, plain(from), plain(to)}
}

func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// Lengths of headers in octets.
const (
	vnetHeader     = 10 // struct virtio_net_hdr: how the frame is to be segmented and summed; kept as it came
	ethernetHeader = 14
	vlanTag        = 4
	ipv4Header     = 20
	ipv6Header     = 40
)

// frameKey finds whose a frame is that came from the lot: a struct virtio_net_hdr, an Ethernet header, at most one VLAN tag
// (IEEE 802.1Q), and TCP or UDP right behind the IP header. It reports false for anything else.
func frameKey(b []byte) (lotKey, bool) {
	if len(b) < vnetHeader+ethernetHeader {
		return lotKey{}, false
	}
	b = b[vnetHeader:]
	kind, b := binary.BigEndian.Uint16(b[ethernetHeader-2:]), b[ethernetHeader:]
	if kind == unix.ETH_P_8021Q && len(b) >= vlanTag {
		kind, b = binary.BigEndian.Uint16(b[vlanTag-2:]), b[vlanTag:]
	}
	switch kind {
	case unix.ETH_P_IP:
		return ipv4Key(b)
	case unix.ETH_P_IPV6:
		return ipv6Key(b)
	}
	return lotKey{}, false
}

// ipv4Key refuses fragments: they have no ports, or may not be all.
func ipv4Key(b []byte) (lotKey, bool) {
	if len(b) < ipv4Header || b[0]>>4 != 4 {
		return lotKey{}, false
	}
	const fragment = 0x3fff // offset and "more fragments" (RFC 791)
	n := int(b[0]&0xf) * 4
	if n < ipv4Header || binary.BigEndian.Uint16(b[6:])&fragment != 0 {
		return lotKey{}, false
	}
	return portsKey(b[9], netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:])), b, n)
}

// ipv6Key refuses IPv4-mapped addresses, which no wire is to carry (RFC 4038, 4.2): they would be taken for those of a
// flow of IPv4.
func ipv6Key(b []byte) (lotKey, bool) {
	if len(b) < ipv6Header || b[0]>>4 != 6 {
		return lotKey{}, false
	}
	from, to := netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	if from.Is4In6() || to.Is4In6() {
		return lotKey{}, false
	}
	return portsKey(b[6], from, to, b, ipv6Header)
}

// portsKey reads the ports, which TCP and UDP have in the same place, n octets into a packet.
func portsKey(protocol byte, from, to netip.Addr, b []byte, n int) (lotKey, bool) {
	proto := flow.Proto(protocol)
	if proto != flow.TCP && proto != flow.UDP || len(b) < n+4 {
		return lotKey{}, false
	}
	return newLotKey(proto,
		netip.AddrPortFrom(from, binary.BigEndian.Uint16(b[n:])),
		netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[n+2:]))), true
}
