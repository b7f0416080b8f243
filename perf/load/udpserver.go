package load

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	batch       = 64   // datagrams a system call
	maxDatagram = 2048 // bytes; the suite sends less
)

// ServeUDP starts a server for datagrams: Echo or Sink.
func ServeUDP(host Host, addr netip.AddrPort, kind Kind) (*Server, error) {
	s, err := newServer(kind)
	if err != nil {
		return nil, err
	}
	s.loop.onTick = s.flushPeer
	return s.listen(host, addr, unix.SOCK_DGRAM, func(fd int) handler {
		return &datagrams{s: s, fd: fd, vector: newVector(batch, maxDatagram)}
	})
}

// datagrams is the socket of a UDP server.
type datagrams struct {
	s      *Server
	fd     int
	vector *vector
}

func (d *datagrams) ready(uint32) {
	v := d.vector
	v.reset()
	n, e := sysRecvmmsg(d.fd, v.messages)
	if e != 0 {
		if e != unix.EAGAIN && e != unix.EINTR {
			d.s.loop.fail(e)
		}
		return
	}
	bytes := 0
	for i := range n {
		size := int(v.messages[i].len)
		bytes += size
		d.s.from(v.names[i].addr())
		if d.s.kind == Echo {
			v.iovecs[i].SetLen(size)
		} else {
			d.s.seen.add(v.payload(i)[:size])
		}
	}
	d.s.received.Add(int64(bytes))
	d.s.payloads.Add(int64(n))
	if d.s.kind == Echo {
		// One that is not taken is lost, as it would be on a network.
		_, _ = sysSendmmsg(d.fd, v.messages[:n])
	}
}

// from counts a datagram's sender. Most come from the sender of the one before.
func (s *Server) from(peer netip.Addr) {
	if peer != s.last {
		s.flushPeer()
		s.last = peer
		s.met(peer, 1) // shown at once: who is there matters more than how often
		return
	}
	s.pending++
}

func (s *Server) flushPeer() {
	if s.pending > 0 {
		s.met(s.last, s.pending)
		s.pending = 0
	}
}

// Distinct is how many different datagrams of a one-way burst came. It may be
// called when the server has stopped.
func (s *Server) Distinct() int64 { return s.seen.distinct }

// sequences remembers which numbered datagrams came.
type sequences struct {
	words    []uint64
	distinct int64
}

func (q *sequences) add(payload []byte) {
	if len(payload) < 8 {
		return
	}
	n := binary.LittleEndian.Uint64(payload)
	if n > 1<<26 {
		return // not one of ours
	}
	for int(n>>6) >= len(q.words) {
		q.words = append(q.words, make([]uint64, max(1<<11, len(q.words)))...)
	}
	if bit := uint64(1) << (n & 63); q.words[n>>6]&bit == 0 {
		q.words[n>>6] |= bit
		q.distinct++
	}
}

// vector is room for a number of datagrams and their addresses.
type vector struct {
	messages []mmsghdr
	iovecs   []unix.Iovec
	names    []sockaddr
	buf      []byte
	size     int
}

func newVector(n, size int) *vector {
	v := &vector{
		messages: make([]mmsghdr, n), iovecs: make([]unix.Iovec, n), names: make([]sockaddr, n),
		buf: make([]byte, n*size), size: size,
	}
	for i := range n {
		v.iovecs[i].Base = &v.buf[i*size]
		v.messages[i].hdr.Iov = &v.iovecs[i]
		v.messages[i].hdr.SetIovlen(1)
		v.messages[i].hdr.Name = (*byte)(unsafe.Pointer(&v.names[i].raw))
	}
	v.reset()
	return v
}

// reset makes all of it room again.
func (v *vector) reset() {
	for i := range v.messages {
		v.iovecs[i].SetLen(v.size)
		v.messages[i].hdr.Namelen = uint32(unsafe.Sizeof(v.names[i].raw))
	}
}

// unnamed is for sending on a connected socket.
func (v *vector) unnamed() {
	for i := range v.messages {
		v.messages[i].hdr.Name, v.messages[i].hdr.Namelen = nil, 0
	}
}

func (v *vector) payload(i int) []byte { return v.buf[i*v.size : (i+1)*v.size] }
