package load

import (
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Kind is what a server does with those who come.
type Kind int

const (
	Echo   Kind = iota // returns what it is sent
	Sink               // takes it and says nothing
	Source             // sends without end
)

// Server serves one address of one host.
type Server struct {
	// Immutable.
	loop *loop
	kind Kind

	accepted atomic.Int64
	open     atomic.Int64
	received atomic.Int64
	payloads atomic.Int64

	mu    sync.Mutex // guards what follows
	peers map[netip.Addr]int64

	// The loop's thread only.
	last    netip.Addr // the peer of the last datagram, and how many more
	pending int64      // came from there than peers knows
	seen    sequences
}

// Accepted is how many TCP connections came.
func (s *Server) Accepted() int64 { return s.accepted.Load() }

// Open is how many TCP connections are there.
func (s *Server) Open() int64 { return s.open.Load() }

// Received is how many bytes of payload came.
func (s *Server) Received() int64 { return s.received.Load() }

// Datagrams is how many datagrams came.
func (s *Server) Datagrams() int64 { return s.payloads.Load() }

// Peers is who came, with the number of connections or datagrams. Datagrams of
// the newest peer may be missing until Stop.
func (s *Server) Peers() map[netip.Addr]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.peers)
}

// Err is the first thing that went wrong.
func (s *Server) Err() error { return s.loop.err() }

// Stop ends the server; connections that are left are reset. It may be called
// more than once.
func (s *Server) Stop() {
	s.loop.stop()
	s.flushPeer()
}

func newServer(kind Kind) (*Server, error) {
	l, err := newLoop()
	if err != nil {
		return nil, err
	}
	return &Server{loop: l, kind: kind, peers: make(map[netip.Addr]int64)}, nil
}

// listen makes a socket and starts the server with it.
func (s *Server) listen(host Host, addr netip.AddrPort, kind int, h func(fd int) handler) (*Server, error) {
	var fd int
	var err error
	host.Do(func() { fd, err = bind(addr, kind) })
	if err != nil {
		sysClose(s.loop.epfd)
		return nil, fmt.Errorf("serve %s: %w", addr, err)
	}
	s.loop.start(host, func() error {
		s.loop.add(fd, unix.EPOLLIN, h(fd))
		return nil
	})
	return s, nil
}

// bind makes a socket at an address; one for connections listens.
func bind(addr netip.AddrPort, kind int) (fd int, err error) {
	to := newSockaddr(addr)
	fd, e := sysSocket(to.family(), kind)
	if e != 0 {
		return -1, fmt.Errorf("make a socket: %w", e)
	}
	defer func() {
		if err != nil {
			sysClose(fd)
		}
	}()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return -1, fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	if kind == unix.SOCK_DGRAM {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, datagramBuffer); err != nil {
			return -1, fmt.Errorf("set SO_RCVBUFFORCE: %w", err)
		}
	}
	if e := sysBind(fd, to); e != 0 {
		return -1, fmt.Errorf("bind: %w", e)
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(fd, backlog); err != nil {
			return -1, fmt.Errorf("listen: %w", err)
		}
	}
	return fd, nil
}

const (
	backlog = 4096

	// datagramBuffer, in bytes, holds all datagrams of a one-way burst: what is
	// lost is lost on the way.
	datagramBuffer = 256 << 20
)

// met counts what came from a peer.
func (s *Server) met(peer netip.Addr, n int64) {
	s.mu.Lock()
	s.peers[peer] += n
	s.mu.Unlock()
}
