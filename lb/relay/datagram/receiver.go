package datagram

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// BatchSize is how many messages one system call may take.
	BatchSize = 64
	// MaxSize is room for the largest datagram (65,527 bytes over IPv6) and for
	// what GRO puts together (64 KiB).
	MaxSize     = 64 << 10
	controlSize = 128
)

// Message is one or, by GRO, several equal datagrams that came together.
type Message struct {
	Data    []byte     // until the next Receive
	Segment int        // length of each datagram in Data, the last may be shorter; 0 = Data is one
	From    *Name      // until the next Receive
	Local   netip.Addr // with SocketParams.PacketInfo, else the zero value
	Cut     bool       // it was longer than MaxSize: no datagram can be
}

// Count is how many datagrams the message holds.
func (m *Message) Count() int {
	if m.Segment == 0 || len(m.Data) == 0 {
		return 1
	}
	return (len(m.Data) + m.Segment - 1) / m.Segment
}

// Receiver takes datagrams from sockets, many at a time. It is not safe for
// concurrent use, and costs 4 MiB of buffers, of which only the pages that were
// ever filled are resident.
type Receiver struct {
	msgs    [BatchSize]unix.Mmsghdr
	iovs    [BatchSize]unix.Iovec
	names   [BatchSize]Name
	control [BatchSize][controlSize]byte
	buffers []byte
	out     [BatchSize]Message
	used    int // messages whose headers the kernel has written to
}

// NewReceiver makes a Receiver.
func NewReceiver() *Receiver {
	r := &Receiver{buffers: make([]byte, BatchSize*MaxSize), used: BatchSize}
	for i := range r.msgs {
		h := &r.msgs[i].Hdr
		r.iovs[i].Base = &r.buffers[i*MaxSize]
		r.iovs[i].SetLen(MaxSize)
		h.Iov = &r.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&r.names[i].raw))
		h.Control = &r.control[i][0]
	}
	return r
}

// Receive takes what waits, at most BatchSize messages. Fewer than that means
// that the socket was empty then. The error is an errno; EAGAIN when nothing waits.
func (r *Receiver) Receive(fd int) ([]Message, error) {
	for i := range r.msgs[:r.used] {
		h := &r.msgs[i].Hdr
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(controlSize)
		h.Flags = 0
	}
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.msgs[0])), BatchSize, unix.MSG_DONTWAIT, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			r.used = 1 // the kernel may have begun with the first
			return nil, errno
		}
		r.used = min(int(n)+1, BatchSize)
		for i := range int(n) {
			r.parse(i)
		}
		return r.out[:n], nil
	}
}

func (r *Receiver) parse(i int) {
	h := &r.msgs[i].Hdr
	m := &r.out[i]
	start := i * MaxSize
	*m = Message{
		Data: r.buffers[start : start+int(r.msgs[i].Len)],
		From: &r.names[i],
		Cut:  h.Flags&unix.MSG_TRUNC != 0,
	}
	r.names[i].len = h.Namelen
	m.parseControl(r.control[i][:h.Controllen])
}

// parseControl reads what came with a message. What it does not know it skips.
func (m *Message) parseControl(b []byte) {
	for c, rest, ok := cutControl(b); ok; c, rest, ok = cutControl(rest) {
		switch {
		case c.is(unix.SOL_UDP, unix.UDP_GRO, 4):
			m.Segment = int(int32(binary.NativeEndian.Uint32(c.data)))
		case c.is(unix.SOL_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo):
			m.Local = netip.AddrFrom4([4]byte(c.data[4:])) // ipi_spec_dst
		case c.is(unix.SOL_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo):
			m.Local = netip.AddrFrom16([16]byte(c.data)).Unmap()
		}
	}
	if m.Segment <= 0 || m.Segment >= len(m.Data) {
		m.Segment = 0
	}
}
