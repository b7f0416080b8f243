package testnet

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// pair is a client of a server on its own host's loopback.
func pair(t *testing.T, handler func(net.Conn)) (*Host, *Server, net.Conn) {
	t.Helper()
	h := New(t).Host("a")
	srv := h.Serve(0, handler)
	c, err := h.Dial("tcp", loopback(srv.Port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return h, srv, c
}

func loopback(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

func TestServerClose(t *testing.T) {
	_, srv, c := pair(t, Echo)
	if err := Ask(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if srv.Accepted() != 1 || srv.Open() != 1 {
		t.Errorf("accepted %d, open %d; want one each", srv.Accepted(), srv.Open())
	}
	srv.Close()
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the client reads %v, want %v", err, io.EOF)
	}
	if srv.Open() != 0 {
		t.Errorf("%d connections open after Close", srv.Open())
	}
}

func TestServerKill(t *testing.T) {
	_, srv, c := pair(t, Echo)
	if err := Ask(c, "hello"); err != nil {
		t.Fatal(err)
	}
	srv.Kill()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client reads %v, want %v", err, syscall.ECONNRESET)
	}
}

func TestServerStopListening(t *testing.T) {
	h, srv, c := pair(t, Echo)
	if err := Ask(c, "hello"); err != nil {
		t.Fatal(err)
	}
	srv.StopListening()
	if _, err := h.Dial("tcp", loopback(srv.Port)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new client gets %v, want %v", err, syscall.ECONNREFUSED)
	}
	if err := Ask(c, "still there"); err != nil {
		t.Errorf("the old one: %v", err)
	}
}

func TestNamedThenEcho(t *testing.T) {
	_, _, c := pair(t, Named("alpha"))
	if name, err := ReadName(c); name != "alpha" || err != nil {
		t.Errorf("name %q, %v", name, err)
	}
	if err := Ask(c, "hello"); err != nil {
		t.Error(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(c); len(rest) != 0 || err != nil {
		t.Errorf("after the half-close: %q, %v", rest, err)
	}
}

func TestHoldNeitherReadsNorEnds(t *testing.T) {
	_, srv, c := pair(t, Hold)
	if _, err := c.Write([]byte("anybody?")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the client reads %v, want a timeout", err)
	}
	if srv.Open() != 1 {
		t.Errorf("open %d, want 1", srv.Open())
	}
}

func TestBulk(t *testing.T) {
	const size = 3 << 20
	sums := make(chan Sum, 1)
	_, _, c := pair(t, func(c net.Conn) {
		got, err := ReceiveBulk(c)
		if err != nil {
			t.Errorf("receive: %v", err)
		}
		sums <- got
	})
	sent, err := SendBulk(c, 7, size)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	if got := <-sums; got != sent || got != StreamSum(7, size) || got.Bytes != size {
		t.Errorf("received %v, sent %v", got, sent)
	}
	if StreamSum(8, size) == sent {
		t.Error("two seeds give one stream")
	}
}
