package datagram

import (
	"errors"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bounds of UDP_SEGMENT (Linux: UDP_MAX_SEGMENTS, and the length of a packet).
const (
	maxSegments  = 64
	maxSegmented = 65000

	sendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
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
	written int // messages whose control data is written
}

// outgoing is what is known of a message that is being collected.
type outgoing struct {
	to      *Name
	source  netip.Addr
	segment int // length of its datagrams
	count   int
	bytes   int
	closed  bool // a shorter datagram, or one with a header: nothing may follow
	apart   bool // sent one by one: count is how many are left
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
	if s.n == s.written || d.Alone || len(d.Header) > 0 || len(d.Data) == 0 {
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

// ErrPartial means that a message after the first failed, and that the kernel does
// not say why: sendmmsg(2) has no place for that.
var ErrPartial = errors.New("a datagram was not sent")

// Flush sends what was collected. On an error, ErrPartial or an errno, the first
// message that is left is the one that failed: Flush again, Skip or Split it and go
// on, or Reset. Flush forgets what it has sent.
func (s *Sender) Flush(fd int) (sent Sent, err error) {
	for ; s.written < s.n; s.written++ {
		s.writeControl(s.written)
	}
	for s.next < s.n {
		if s.meta[s.next].apart {
			err = s.sendOne(fd, &sent)
		} else {
			err = s.sendAll(fd, &sent)
		}
		if err != nil {
			return sent, err
		}
	}
	s.Reset()
	return sent, nil
}

// sendAll sends messages until one fails.
func (s *Sender) sendAll(fd int, sent *Sent) error {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&s.msgs[s.next])), uintptr(s.n-s.next), sendFlags, 0, 0)
	if errno != 0 {
		return retryable(errno)
	}
	for range int(n) {
		sent.Datagrams += s.meta[s.next].count
		sent.Bytes += s.meta[s.next].bytes
		s.next++
	}
	if s.next < s.n {
		return ErrPartial
	}
	return nil
}

// sendOne sends the next datagram of a message that was split.
func (s *Sender) sendOne(fd int, sent *Sent) error {
	h, m := &s.msgs[s.next].Hdr, &s.meta[s.next]
	n, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(h)), sendFlags)
	if errno != 0 {
		return retryable(errno)
	}
	sent.Datagrams++
	sent.Bytes += int(n)
	s.step(h, m)
	return nil
}

// step goes on to the next datagram of a message that was split.
func (s *Sender) step(h *unix.Msghdr, m *outgoing) {
	if m.count--; m.count == 0 {
		s.next++
		return
	}
	h.Iov = (*unix.Iovec)(unsafe.Add(unsafe.Pointer(h.Iov), unsafe.Sizeof(unix.Iovec{})))
}

// retryable is nil for a call that a signal has interrupted.
func retryable(errno unix.Errno) error {
	if errno == unix.EINTR {
		return nil
	}
	return errno
}

// writeControl writes the control data of a message.
func (s *Sender) writeControl(i int) {
	m, h := &s.meta[i], &s.msgs[i].Hdr
	b := s.control[i][:0]
	if m.count > 1 && !m.apart {
		b = appendSegment(b, m.segment)
	}
	if m.source.IsValid() {
		b = appendSource(b, m.source)
	}
	h.Control, h.Controllen = nil, 0
	if len(b) > 0 {
		h.Control = &s.control[i][0]
		h.SetControllen(len(b))
	}
}

// Failed describes the message at which Flush has stopped: where it goes, how many
// datagrams it is, and the length of each but the last.
func (s *Sender) Failed() (to *Name, datagrams, segment int) {
	m := &s.meta[s.next]
	if m.apart {
		return m.to, 1, m.segment
	}
	return m.to, m.count, m.segment
}

// Skip gives up on what Failed describes.
func (s *Sender) Skip() {
	if m := &s.meta[s.next]; m.apart {
		s.step(&s.msgs[s.next].Hdr, m)
	} else {
		s.next++
	}
	if s.next == s.n {
		s.Reset()
	}
}

// Split has Flush send the message at which it has stopped one datagram after the
// other: the way out does not take them together.
func (s *Sender) Split() {
	m, h := &s.meta[s.next], &s.msgs[s.next].Hdr
	if m.count < 2 || m.apart {
		return
	}
	m.apart = true
	h.SetIovlen(1)
	s.writeControl(s.next)
}

// Reset forgets everything that was collected.
func (s *Sender) Reset() { s.n, s.next, s.iov, s.written = 0, 0, 0, 0 }
