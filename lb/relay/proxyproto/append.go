package proxyproto

import (
	"encoding/binary"
	"net/netip"
	"strconv"
)

// Append appends a header that says that a flow over t goes from src, the client, to dst, and returns the longer slice.
// It allocates nothing if dst has MaxAppend bytes of room.
//
// IPv4-mapped addresses count as IPv4; if the families differ the IPv4 one is written IPv4-mapped, as IPv6. Zones are not
// conveyed. If either address is invalid, if t is Unspecified, or for a Datagram in version 1, the header says UNKNOWN
// (version 1) or LOCAL (version 2). Any version other than V1 is taken for V2.
func Append(buf []byte, v Version, t Transport, src, dst netip.AddrPort) []byte {
	known := src.Addr().IsValid() && dst.Addr().IsValid() && t != Unspecified
	src = netip.AddrPortFrom(src.Addr().Unmap(), src.Port())
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	if v == V1 {
		return appendV1(buf, known && t == Stream, src, dst)
	}
	return appendV2(buf, known, t, src, dst)
}

func appendV1(buf []byte, known bool, src, dst netip.AddrPort) []byte {
	buf = append(buf, signatureV1...)
	if !known {
		return append(buf, "UNKNOWN\r\n"...)
	}
	ipv4 := src.Addr().Is4() && dst.Addr().Is4()
	if ipv4 {
		buf = append(buf, "TCP4 "...)
	} else {
		buf = append(buf, "TCP6 "...)
	}
	buf = append(appendText(buf, src.Addr(), ipv4), ' ')
	buf = append(appendText(buf, dst.Addr(), ipv4), ' ')
	buf = append(strconv.AppendUint(buf, uint64(src.Port()), 10), ' ')
	buf = strconv.AppendUint(buf, uint64(dst.Port()), 10)
	return append(buf, "\r\n"...)
}

// appendText writes an unmapped address. An IPv4 address in a TCP6 line is written in hexadecimal groups, as the
// specification knows no dotted form there.
func appendText(buf []byte, a netip.Addr, ipv4 bool) []byte {
	if ipv4 || !a.Is4() {
		return a.WithZone("").AppendTo(buf)
	}
	b := a.As4()
	buf = append(buf, "::ffff:"...)
	buf = strconv.AppendUint(buf, uint64(b[0])<<8|uint64(b[1]), 16)
	buf = append(buf, ':')
	return strconv.AppendUint(buf, uint64(b[2])<<8|uint64(b[3]), 16)
}

func appendV2(buf []byte, known bool, t Transport, src, dst netip.AddrPort) []byte {
	buf = append(buf, signatureV2...)
	if !known {
		return append(buf, cmdLocal, famUnspec, 0, 0)
	}
	dgram := byte(0)
	if t == Datagram {
		dgram = 1 // both families: the datagram value follows the stream value
	}
	if src.Addr().Is4() && dst.Addr().Is4() {
		s, d := src.Addr().As4(), dst.Addr().As4()
		buf = append(buf, cmdProxy, famTCP4+dgram, 0, v2Addr4)
		buf = append(append(buf, s[:]...), d[:]...)
	} else {
		s, d := src.Addr().As16(), dst.Addr().As16()
		buf = append(buf, cmdProxy, famTCP6+dgram, 0, v2Addr6)
		buf = append(append(buf, s[:]...), d[:]...)
	}
	buf = binary.BigEndian.AppendUint16(buf, src.Port())
	return binary.BigEndian.AppendUint16(buf, dst.Port())
}
