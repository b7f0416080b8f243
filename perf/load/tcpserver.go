package load

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// chunk is how much a bulk sender writes, and a receiver takes, at once.
const chunk = 256 << 10

// ServeTCP starts a server for TCP connections.
func ServeTCP(host Host, addr netip.AddrPort, kind Kind) (*Server, error) {
	s, err := newServer(kind)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, chunk)
	return s.listen(host, addr, unix.SOCK_STREAM, func(fd int) handler {
		return &listener{s: s, fd: fd, buf: buf}
	})
}

// listener accepts connections.
type listener struct {
	s    *Server
	fd   int
	buf  []byte // shared by all connections
	from sockaddr
}

func (l *listener) ready(uint32) {
	for {
		fd, e := sysAccept(l.fd, &l.from)
		if e != 0 {
			if e != unix.EAGAIN && e != unix.EINTR && e != unix.ECONNABORTED {
				l.s.loop.fail(e)
			}
			return
		}
		l.s.accepted.Add(1)
		l.s.open.Add(1)
		l.s.met(l.from.addr(), 1)
		c := &served{s: l.s, fd: fd, buf: l.buf}
		events := uint32(unix.EPOLLIN)
		if l.s.kind == Source {
			events = unix.EPOLLOUT | unix.EPOLLRDHUP
		}
		l.s.loop.add(fd, events, c)
	}
}

// served is a connection at a server.
type served struct {
	s   *Server
	fd  int
	buf []byte
}

func (c *served) ready(events uint32) {
	if events&(unix.EPOLLERR|unix.EPOLLHUP|unix.EPOLLRDHUP) != 0 && c.s.kind != Echo {
		c.close()
		return
	}
	switch c.s.kind {
	case Echo:
		c.echo()
	case Sink:
		c.take(sysDiscard(c.fd, c.buf))
	case Source:
		if _, e := sysWrite(c.fd, c.buf); e != 0 && e != unix.EAGAIN {
			c.close()
		}
	}
}

// echo returns what is there. A request that does not fit into the send buffer
// is no request but bulk data, which is not for this server.
func (c *served) echo() {
	n := c.take(sysRead(c.fd, c.buf))
	if n == 0 {
		return
	}
	if sent, e := sysWrite(c.fd, c.buf[:n]); e != 0 || sent < n {
		c.close()
	}
}

// take counts what was read, and closes at the end of the stream.
func (c *served) take(n int, e unix.Errno) int {
	switch {
	case n > 0:
		c.s.received.Add(int64(n))
	case e != unix.EAGAIN && e != unix.EINTR:
		c.close()
	}
	return n
}

func (c *served) close() {
	c.s.loop.remove(c.fd)
	c.s.open.Add(-1)
}
