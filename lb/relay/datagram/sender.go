package datagram

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bounds of UDP_SEGMENT (Linux: UDP_MAX_SEGMENTS, and the length of a packet).
const (
	maxSegments  = 64
	maxSegmented = 65000
)

// Sender collects datagrams for one socket and sends them together. What it is
// given must stay unchanged until Flush. It is not safe for concurrent use.
type Sender struct {
	msgs    [BatchSize]unix.Mmsghdr
	iovs    [2 * BatchSize]unix.Iovec
	control [BatchSize][controlSize]byte
	meta    [BatchSize]outgoing
	n       int // messages collected
	iov     int // iovecs used
	next    int // the first message not sent
}

// outgoing is what is known of a message that is being collected.
type outgoing struct {
	to      *Name
	source  netip.Addr
	segment int // length of its datagrams
	count   int
	bytes   int
	closed  bool // a shorter datagram, or one with a header: nothing may follow
}

// Datagram is what to send. Header, if any, goes before Data in one datagram.
type Datagram struct {
	Header []byte
	Data   []byte
	To     *Name      // nil = the peer of a connected socket
	Source netip.Addr // the local address to send from; zero = as bound
	Alone  bool       // never put together with others (UDP_SEGMENT)
}

// Add collects one datagram. It reports false when there is no room: Flush first.
func (s *Sender) Add(d Datagram) bool {
	if s.iov+2 > len(s.iovs) {
		return false
	}
	if s.join(d) {
		return true
	}
	if s.n == BatchSize {
		return false
	}
	i := s.n
	s.n++
	h := &s.msgs[i].Hdr
	*h = unix.Msghdr{Iov: &s.iovs[s.iov]}
	if d.To != nil {
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&d.To.raw)), d.To.len
	}
	iovs := 0
	if len(d.Header) > 0 {
		s.push(d.Header)
		iovs++
	}
	if len(d.Data) > 0 || iovs == 0 {
		s.push(d.Data)
		iovs++
	}
	h.SetIovlen(iovs)
	size := len(d.Header) + len(d.Data)
	s.meta[i] = outgoing{
		to: d.To, source: d.Source, segment: size, count: 1, bytes: size,
		closed: d.Alone || len(d.Header) > 0 || size == 0,
	}
	return true
}

// join appends d to the message before it, if the kernel can take them apart
// again: equal lengths, only the last one shorter.
func (s *Sender) join(d Datagram) bool {
	if s.n == 0 || d.Alone || len(d.Header) > 0 || len(d.Data) == 0 {
		return false
	}
	m := &s.meta[s.n-1]
	if m.closed || m.to != d.To || m.source != d.Source || len(d.Data) > m.segment ||
		m.count == maxSegments || m.bytes+len(d.Data) > maxSegmented {
		return false
	}
	s.push(d.Data)
	h := &s.msgs[s.n-1].Hdr
	h.SetIovlen(int(h.Iovlen) + 1)
	m.count++
	m.bytes += len(d.Data)
	m.closed = len(d.Data) < m.segment
	return true
}

func (s *Sender) push(b []byte) {
	v := &s.iovs[s.iov]
	s.iov++
	*v = unix.Iovec{}
	if len(b) > 0 {
		v.Base = &b[0]
		v.SetLen(len(b))
	}
}

// Len is how many messages wait to be sent.
func (s *Sender) Len() int { return s.n - s.next }

// Sent is what one Flush has sent.
type Sent struct{ Datagrams, Bytes int }

// Flush sends what was collected. On an error, an errno, the first message is the one
// that failed: Skip or Split it and go on, or Reset. Flush forgets what it has sent.
func (s *Sender) Flush(fd int) (sent Sent, err error) {
	for i := s.next; i < s.n; i++ {
		s.finish(i)
	}
	for s.next < s.n {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&s.msgs[s.next])), uintptr(s.n-s.next), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return sent, errno
		}
		for range int(n) {
			sent.Datagrams += s.meta[s.next].count
			sent.Bytes += s.meta[s.next].bytes
			s.next++
		}
	}
	s.Reset()
	return sent, nil
}

// finish writes the control data of a message.
func (s *Sender) finish(i int) {
	m, h := &s.meta[i], &s.msgs[i].Hdr
	b := s.control[i][:0]
	if m.count > 1 {
		b = appendControl(b, unix.SOL_UDP, unix.UDP_SEGMENT, binary.NativeEndian.AppendUint16(nil, uint16(m.segment)))
	}
	switch {
	case !m.source.IsValid():
	case m.source.Is4():
		info := [unix.SizeofInet4Pktinfo]byte{}
		a := m.source.As4()
		copy(info[4:8], a[:])
		b = appendControl(b, unix.SOL_IP, unix.IP_PKTINFO, info[:])
	default:
		info := [unix.SizeofInet6Pktinfo]byte{}
		a := m.source.As16()
		copy(info[:16], a[:])
		b = appendControl(b, unix.SOL_IPV6, unix.IPV6_PKTINFO, info[:])
	}
	h.Control, h.Controllen = nil, 0
	if len(b) > 0 {
		h.Control = &s.control[i][0]
		h.SetControllen(len(b))
	}
}

func appendControl(b []byte, level, kind int32, data []byte) []byte {
	start := len(b)
	b = b[:start+unix.CmsgSpace(len(data))]
	c := (*unix.Cmsghdr)(unsafe.Pointer(&b[start]))
	c.Level, c.Type = level, kind
	c.SetLen(unix.CmsgLen(len(data)))
	clear(b[start+unix.CmsgLen(0):])
	copy(b[start+unix.CmsgLen(0):], data)
	return b
}

// Failed describes the message at which Flush has stopped.
func (s *Sender) Failed() (to *Name, datagrams int) {
	return s.meta[s.next].to, s.meta[s.next].count
}

// Skip gives up on the message at which Flush has stopped.
func (s *Sender) Skip() {
	s.next++
	if s.next == s.n {
		s.Reset()
	}
}

// Split sends the datagrams of the message at which Flush has stopped one by
// one: the way out does not take them together. Then the message is skipped.
func (s *Sender) Split(fd int, each func(error)) (sent Sent) {
	m, h := &s.meta[s.next], s.msgs[s.next].Hdr
	iovs := unsafe.Slice(h.Iov, m.count)
	h.Control, h.Controllen = nil, 0
	for i := range iovs {
		one := h
		one.Iov = &iovs[i]
		one.SetIovlen(1)
		n, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&one)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if errno != 0 {
			each(errno)
			continue
		}
		sent.Datagrams++
		sent.Bytes += int(n)
	}
	s.Skip()
	return sent
}

// Reset forgets everything that was collected.
func (s *Sender) Reset() { s.n, s.next, s.iov = 0, 0, 0 }
