package testnet

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Server accepts connections and runs a handler for each. It ends with the test.
type Server struct {
	// Immutable after Serve.
	Port    uint16
	ln      net.Listener
	handler func(net.Conn)

	accepted atomic.Int64
	running  sync.WaitGroup

	// mu guards what follows.
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// Serve listens on a TCP port of every address of the host, both families, and
// runs handler for each connection, which is closed when the handler returns.
// Port 0 takes a free one.
func (h *Host) Serve(port uint16, handler func(net.Conn)) *Server {
	h.t.Helper()
	return h.ServeAddr(netip.AddrPortFrom(netip.Addr{}, port), handler)
}

// ServeAddr is Serve on one address.
func (h *Host) ServeAddr(addr netip.AddrPort, handler func(net.Conn)) *Server {
	h.t.Helper()
	ln, err := h.Listen("tcp", addr)
	if err != nil {
		h.t.Fatalf("host %s: serve %s: %v", h.name, addrString(addr), err)
		return nil
	}
	s := ServeListener(ln, handler)
	h.t.Cleanup(s.Close)
	return s
}

// ServeListener serves a listener of the caller's, who closes the server.
func ServeListener(ln net.Listener, handler func(net.Conn)) *Server {
	s := &Server{ln: ln, handler: handler, conns: make(map[net.Conn]struct{})}
	if a, ok := ln.Addr().(*net.TCPAddr); ok {
		s.Port = uint16(a.Port)
	}
	s.running.Go(s.accept)
	return s
}

// Accepted counts the connections so far.
func (s *Server) Accepted() int { return int(s.accepted.Load()) }

// Open counts the connections whose handler has not returned.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// StopListening refuses new connections and keeps the others.
func (s *Server) StopListening() { _ = s.ln.Close() }

// Close stops listening, closes every connection and waits for the handlers.
func (s *Server) Close() { s.end(func(c net.Conn) { _ = c.Close() }) }

// Kill is Close as a crash shows it to the peers: they get resets.
func (s *Server) Kill() { s.end(Reset) }

func (s *Server) end(drop func(net.Conn)) {
	_ = s.ln.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		drop(c)
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *Server) accept() {
	for {
		c, err := s.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or the client gave up first
			time.Sleep(time.Millisecond)
			continue
		}
		s.accepted.Add(1)
		if s.add(c) {
			s.running.Go(func() { s.serve(c) })
		}
	}
}

func (s *Server) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	s.handler(c)
}

func (s *Server) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

// Reset closes a TCP connection with RST instead of FIN.
func Reset(c net.Conn) {
	if tc, ok := c.(*net.TCPConn); ok {
		_ = tc.SetLinger(0)
	}
	_ = c.Close()
}
