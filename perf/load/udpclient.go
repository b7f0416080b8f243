package load

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// AskSpec describes UDP clients that send a datagram, wait for it to come back,
// and go on.
type AskSpec struct {
	Targets []netip.AddrPort // used in turn, by the number of the socket
	Sockets int
	Size    int           // bytes of a datagram, at least 8
	Timeout time.Duration // without an answer until then it is lost; 0 = 250ms
}

// StartAsking starts them on one thread.
func StartAsking(host Host, spec AskSpec) (*Client, error) {
	c, err := newClient()
	if err != nil {
		return nil, err
	}
	if spec.Timeout == 0 {
		spec.Timeout = 250 * time.Millisecond
	}
	a := &asking{c: c, timeout: spec.Timeout, began: time.Now(), buf: make([]byte, maxDatagram)}
	c.loop.onTick = a.tick
	c.loop.start(host, func() error { return a.begin(spec) })
	return c, nil
}

// asking is what the sockets of one client share; all of it is the loop's.
type asking struct {
	c       *Client
	timeout time.Duration
	began   time.Time
	buf     []byte
	all     []*asker
	looked  time.Duration
}

func (a *asking) begin(spec AskSpec) error {
	for i := range spec.Sockets {
		fd, err := dialUDP(newSockaddr(spec.Targets[i%len(spec.Targets)]))
		if err != nil {
			return err
		}
		s := &asker{a: a, fd: fd, request: make([]byte, spec.Size)}
		a.all = append(a.all, s)
		a.c.loop.add(fd, unix.EPOLLIN, s)
	}
	for _, s := range a.all {
		a.c.flows.Add(1)
		s.ask()
	}
	return nil
}

func dialUDP(to *sockaddr) (int, error) {
	fd, errno := sysSocket(to.family(), unix.SOCK_DGRAM)
	if errno != 0 {
		return -1, fmt.Errorf("make a socket: %w", errno)
	}
	if errno := sysConnect(fd, to); errno != 0 {
		sysClose(fd)
		return -1, fmt.Errorf("connect: %w", errno)
	}
	return fd, nil
}

// tick asks again where an answer is overdue.
func (a *asking) tick() {
	now := time.Since(a.began)
	a.looked = now
	for _, s := range a.all {
		if now-s.since > a.timeout {
			a.c.lost.Add(1)
			s.ask()
		}
	}
}

// asker is one socket.
type asker struct {
	a       *asking
	fd      int
	request []byte
	number  uint64 // of the datagram that is out; also its first bytes
	since   time.Duration
}

func (s *asker) ask() {
	s.number++
	binary.LittleEndian.PutUint64(s.request, s.number)
	s.since = time.Since(s.a.began)
	if _, errno := sysWrite(s.fd, s.request); errno != 0 && errno != unix.EAGAIN {
		s.a.c.loop.fail(fmt.Errorf("send a datagram: %w", errno))
	}
}

func (s *asker) ready(uint32) {
	n, errno := sysRead(s.fd, s.a.buf)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return
	case errno != 0:
		s.a.c.loop.fail(fmt.Errorf("receive a datagram: %w", errno))
		return
	case n != len(s.request):
		s.a.c.loop.fail(fmt.Errorf("a datagram of %d bytes was answered with %d", len(s.request), n))
		return
	case binary.LittleEndian.Uint64(s.a.buf) != s.number:
		return // late: it counts as lost already
	}
	a := s.a
	now := time.Since(a.began)
	if a.c.recording.Load() {
		a.c.latency.Add(now - s.since)
	}
	a.c.done.Add(1)
	a.c.received.Add(int64(n))
	s.ask()
	if now-a.looked > a.timeout/4 {
		a.tick()
	}
}
