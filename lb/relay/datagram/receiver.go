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
}

// NewReceiver makes a Receiver.
func NewReceiver() *Receiver {
	r := &Receiver{buffers: make([]byte, BatchSize*MaxSize)}
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
	for i := range r.msgs {
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
			return nil, errno
		}
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
	r.parseControl(r.control[i][:h.Controllen], m)
	if m.Segment >= len(m.Data) {
		m.Segment = 0
	}
}

func (r *Receiver) parseControl(b []byte, m *Message) {
	for len(b) >= unix.SizeofCmsghdr {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		size := int(c.Len)
		if size < unix.SizeofCmsghdr || size > len(b) {
			return
		}
		data := b[unix.CmsgLen(0):size]
		switch {
		case c.Level == unix.SOL_UDP && c.Type == unix.UDP_GRO && len(data) >= 4:
			m.Segment = int(binary.NativeEndian.Uint32(data))
		case c.Level == unix.SOL_IP && c.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			m.Local = netip.AddrFrom4([4]byte(data[4:8])) // ipi_spec_dst
		case c.Level == unix.SOL_IPV6 && c.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			m.Local = netip.AddrFrom16([16]byte(data[:16])).Unmap()
		}
		b = b[min(len(b), unix.CmsgSpace(size-unix.CmsgLen(0))):]
	}
}
