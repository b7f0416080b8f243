package datagram

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// control is one control message (cmsg(3)).
type control struct {
	level, kind int32
	data        []byte
}

// is reports whether it is the named one and has at least size bytes.
func (c *control) is(level, kind int32, size int) bool {
	return c.level == level && c.kind == kind && len(c.data) >= size
}

// cutControl takes the first control message off b. It reports false at the end,
// and at what is none.
func cutControl(b []byte) (c control, rest []byte, ok bool) {
	if len(b) < unix.SizeofCmsghdr {
		return control{}, nil, false
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	if h.Len < unix.SizeofCmsghdr || h.Len > uint64(len(b)) {
		return control{}, nil, false
	}
	size := int(h.Len)
	c = control{level: h.Level, kind: h.Type, data: b[unix.CmsgLen(0):size]}
	return c, b[min(len(b), unix.CmsgSpace(size-unix.CmsgLen(0))):], true
}

// appendControl appends a control message to b, which must have the room.
func appendControl(b []byte, level, kind int32, data []byte) []byte {
	start := len(b)
	b = b[:start+unix.CmsgSpace(len(data))]
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[start]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(len(data)))
	n := copy(b[start+unix.CmsgLen(0):], data)
	clear(b[start+unix.CmsgLen(n):])
	return b
}

// appendSegment asks the kernel to take a message apart into datagrams.
func appendSegment(b []byte, size int) []byte {
	var v [2]byte
	binary.NativeEndian.PutUint16(v[:], uint16(size))
	return appendControl(b, unix.SOL_UDP, unix.UDP_SEGMENT, v[:])
}

// appendSource says from which local address to send: ipi_spec_dst, ipi6_addr.
func appendSource(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		var info [unix.SizeofInet4Pktinfo]byte
		v4 := a.As4()
		copy(info[4:], v4[:])
		return appendControl(b, unix.SOL_IP, unix.IP_PKTINFO, info[:])
	}
	var info [unix.SizeofInet6Pktinfo]byte
	v6 := a.As16()
	copy(info[:], v6[:])
	return appendControl(b, unix.SOL_IPV6, unix.IPV6_PKTINFO, info[:])
}
