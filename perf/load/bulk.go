package load

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// BulkSpec describes TCP clients that send, or receive, as fast as it goes.
type BulkSpec struct {
	Targets []netip.AddrPort // used in turn: a Sink to send to, a Source to receive from
	Conns   int
	Down    bool // receive
}

// StartBulk starts them on one thread.
func StartBulk(host Host, spec BulkSpec) (*Client, error) {
	c, err := newClient()
	if err != nil {
		return nil, err
	}
	c.loop.start(host, func() error {
		buf := make([]byte, chunk)
		for i := range spec.Conns {
			to := newSockaddr(spec.Targets[i%len(spec.Targets)])
			if err := openBulk(c, to, buf, spec.Down); err != nil {
				return err
			}
		}
		return nil
	})
	return c, nil
}

func openBulk(c *Client, to *sockaddr, buf []byte, down bool) error {
	fd, errno := sysSocket(to.family(), unix.SOCK_STREAM)
	if errno != 0 {
		return fmt.Errorf("make a socket: %w", errno)
	}
	if errno := sysConnect(fd, to); errno != 0 && errno != unix.EINPROGRESS {
		sysClose(fd)
		return fmt.Errorf("connect: %w", errno)
	}
	events := uint32(unix.EPOLLOUT)
	if down {
		events = unix.EPOLLIN
	}
	c.loop.add(fd, events, &stream{c: c, fd: fd, buf: buf, down: down})
	return nil
}

// stream is one connection full of bulk data.
type stream struct {
	c     *Client
	fd    int
	buf   []byte
	down  bool
	known bool
}

func (s *stream) ready(uint32) {
	move := sysWrite
	if s.down {
		move = sysDiscard
	}
	n, errno := move(s.fd, s.buf)
	switch {
	case n > 0:
		if s.down {
			s.c.received.Add(int64(n))
		}
		if !s.known {
			s.known = true
			s.c.flows.Add(1)
			s.c.open.Add(1)
		}
	case errno == 0:
		s.fail(fmt.Errorf("bulk data: the connection was closed"))
	case errno != unix.EAGAIN && errno != unix.EINTR:
		s.fail(fmt.Errorf("bulk data: %w", errno))
	}
}

func (s *stream) fail(err error) {
	s.c.loop.fail(err)
	s.c.loop.remove(s.fd)
}
