package load

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// ExchangeSpec describes TCP clients that send a request, wait for as many bytes
// in return, and go on.
type ExchangeSpec struct {
	Targets []netip.AddrPort // used in turn, by the number of the connection
	Conns   int              // at a time
	Size    int              // bytes of a request and of a response
	After   After            // what follows an exchange
	Opening int              // how many may be on their way at a time; 0 = all
}

// After is what a client does when an exchange is over.
type After int

const (
	Again     After = iota // the next one, on the same connection
	Reconnect              // close, and the next one on a new connection
	Hold                   // nothing more: the connection stays, idle
)

// StartExchanges starts them on one thread.
func StartExchanges(host Host, spec ExchangeSpec) (*Client, error) {
	c, err := newClient()
	if err != nil {
		return nil, err
	}
	x := &exchanges{c: c, spec: spec, request: make([]byte, spec.Size), buf: make([]byte, spec.Size+1), began: time.Now()}
	for _, t := range spec.Targets {
		x.targets = append(x.targets, newSockaddr(t))
	}
	if x.spec.Opening == 0 {
		x.spec.Opening = spec.Conns
	}
	c.loop.start(host, x.begin)
	return c, nil
}

// exchanges is what the connections of one client share; all of it is the loop's.
type exchanges struct {
	c       *Client
	spec    ExchangeSpec
	targets []*sockaddr
	request []byte
	buf     []byte
	began   time.Time
	opened  int // connections so far
	opening int // of them without an exchange yet
}

// begin opens as many connections as may be on their way.
func (x *exchanges) begin() error {
	for x.opened < x.spec.Conns && x.opening < x.spec.Opening {
		if err := x.open(new(exchange)); err != nil {
			return err
		}
	}
	return nil
}

// open makes e a new connection.
func (x *exchanges) open(e *exchange) error {
	to := x.targets[x.opened%len(x.targets)]
	*e = exchange{x: x, since: x.now()}
	fd, errno := sysSocket(to.family(), unix.SOCK_STREAM)
	if errno != 0 {
		return fmt.Errorf("make a socket: %w", errno)
	}
	e.fd = fd
	if errno := sysConnect(fd, to); errno != 0 && errno != unix.EINPROGRESS {
		sysClose(fd)
		return fmt.Errorf("connect: %w", errno)
	}
	x.opened++
	x.opening++
	x.c.loop.add(fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLET, e)
	return nil
}

// now is the time since the beginning: half the size and twice the speed of
// time.Now.
func (x *exchanges) now() time.Duration { return time.Since(x.began) }

// exchange is one connection.
type exchange struct {
	x     *exchanges
	fd    int
	since time.Duration // when the exchange began
	got   int           // bytes of the response
	sent  bool          // the request is on its way
	known bool          // there was an exchange before
}

func (e *exchange) ready(events uint32) {
	if !e.sent && events&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		e.send()
	}
	if e.sent && events&unix.EPOLLIN != 0 {
		e.receive()
	}
}

func (e *exchange) send() {
	n, errno := sysWrite(e.fd, e.x.request)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
	case errno != 0:
		e.fail(fmt.Errorf("connect or send: %w", errno))
	case n < len(e.x.request):
		e.fail(errors.New("a request does not fit into the send buffer"))
	default:
		e.sent = true
		if !e.known {
			e.x.c.flows.Add(1)
		}
	}
}

func (e *exchange) receive() {
	n, errno := sysRead(e.fd, e.x.buf)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return
	case errno != 0:
		e.fail(fmt.Errorf("receive: %w", errno))
		return
	case n == 0:
		e.fail(errors.New("the connection was closed before the response was complete"))
		return
	}
	e.x.c.received.Add(int64(n))
	e.got += n
	switch {
	case e.got > e.x.spec.Size:
		e.fail(errors.New("more bytes came than were asked for"))
	case e.got == e.x.spec.Size:
		e.over()
	}
}

// over is the end of an exchange.
func (e *exchange) over() {
	x := e.x
	now := x.now()
	if x.c.recording.Load() {
		x.c.latency.Add(now - e.since)
	}
	x.c.done.Add(1)
	if !e.known {
		e.known = true
		x.opening--
		x.c.open.Add(1)
	}
	var err error
	switch x.spec.After {
	case Again:
		e.since, e.got, e.sent = now, 0, false
		e.send()
	case Reconnect:
		x.c.loop.remove(e.fd)
		x.c.open.Add(-1)
		err = x.open(e)
	case Hold:
		err = x.begin()
	}
	if err != nil {
		x.c.loop.fail(err)
	}
}

// fail ends the connection. What went wrong ends the measurement too, so nothing
// is opened in its place.
func (e *exchange) fail(err error) {
	e.x.c.loop.fail(err)
	e.x.c.loop.remove(e.fd)
}
