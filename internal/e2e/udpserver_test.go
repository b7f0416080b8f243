package e2e

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// udpServer answers datagrams on a host.
type udpServer struct {
	pc    net.PacketConn
	got   atomic.Int64
	mu    sync.Mutex
	froms map[string]int // datagrams by sender
	wg    sync.WaitGroup
}

// serveUDP runs answer for each datagram; nil from it is no answer.
func serveUDP(t *testing.T, h *testnet.Host, at netip.AddrPort, answer func(b []byte) []byte) *udpServer {
	t.Helper()
	pc, err := h.ListenPacket("udp", at)
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	_ = pc.(*net.UDPConn).SetReadBuffer(8 << 20)
	s := &udpServer{pc: pc, froms: make(map[string]int)}
	s.wg.Go(func() {
		buf := make([]byte, 70_000)
		for {
			n, from, err := pc.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			s.got.Add(1)
			s.mu.Lock()
			s.froms[from.String()]++
			s.mu.Unlock()
			if out := answer(buf[:n]); out != nil {
				_, _ = pc.WriteTo(out, from)
			}
		}
	})
	t.Cleanup(s.close)
	return s
}

func (s *udpServer) close() { s.pc.Close(); s.wg.Wait() }

// senders is from how many addresses datagrams have come.
func (s *udpServer) senders() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.froms)
}

func echo(b []byte) []byte { return b }

// named answers with a name before what came.
func named(name string) func([]byte) []byte {
	return func(b []byte) []byte { return append([]byte(name+" "), b...) }
}

// udpService is the configuration of one UDP service.
func (w world) udpService(backends []string, more ...string) string {
	return strings.ReplaceAll(w.service(backends, more...), "tcp://", "udp://")
}

// udp is a connected socket of the client.
func (w world) udp(t *testing.T, to netip.AddrPort) net.Conn {
	t.Helper()
	c, err := w.Client.Dial("udp", to)
	if err != nil {
		t.Fatalf("connect a UDP socket: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// greeting is what meets sends.
const greeting = "hello"

// meets exchanges one datagram and waits until the session is carried as it is to
// be.
func (w world) meets(t *testing.T, b *baton, c net.Conn) {
	t.Helper()
	if _, err := exchange(c, []byte(greeting)); err != nil {
		t.Fatal(err)
	}
	w.carriedUDP(b, c)
}

// exchange sends one datagram and waits for one.
func exchange(c net.Conn, b []byte) ([]byte, error) {
	if _, err := c.Write(b); err != nil {
		return nil, err
	}
	return receive(c)
}

func receive(c net.Conn) ([]byte, error) {
	buf := make([]byte, 70_000)
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	n, err := c.Read(buf)
	return buf[:n], err
}

// try is exchange without much patience.
func try(c net.Conn) ([]byte, error) {
	if _, err := c.Write([]byte("x")); err != nil {
		return nil, err
	}
	_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	return buf[:n], err
}
