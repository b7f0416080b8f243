package main

import (
	"errors"
	"net"
	"testing"
	"time"
)

func TestHeldListener(t *testing.T) {
	for _, released := range []bool{true, false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		held := newHeldListener(l, release)
		f, err := listenerFile(held)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		type accepted struct {
			conn net.Conn
			err  error
		}
		got := make(chan accepted, 1)
		go func() {
			conn, err := held.Accept()
			got <- accepted{conn, err}
		}()
		select {
		case a := <-got:
			t.Fatalf("it took %v, %v before it was released", a.conn, a.err)
		case <-time.After(20 * time.Millisecond):
		}
		if released {
			close(release)
			if a := <-got; a.err != nil {
				t.Errorf("released: %v", a.err)
			} else {
				a.conn.Close()
			}
		}
		if err := held.Close(); err != nil {
			t.Error(err)
		}
		if !released {
			if a := <-got; !errors.Is(a.err, net.ErrClosed) {
				t.Errorf("closed: %v, %v", a.conn, a.err)
			}
		}
		c.Close()
	}
}

func TestListenerWithoutDescriptor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := listenerFile(struct{ net.Listener }{l}); err == nil {
		t.Error("a listener without a descriptor has one")
	}
}
