package main

import (
	"fmt"
	"net"
	"os"
	"sync"
)

// heldListener is a listener that another process serves yet: it takes nothing
// before that one has let go.
type heldListener struct {
	net.Listener
	released <-chan struct{}
	closed   chan struct{}
	once     sync.Once
}

func newHeldListener(l net.Listener, released <-chan struct{}) *heldListener {
	return &heldListener{Listener: l, released: released, closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *heldListener) Accept() (net.Conn, error) {
	select {
	case <-l.released:
		return l.Listener.Accept()
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *heldListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// listenerFile is a copy of a listener's descriptor, for another process.
func listenerFile(l net.Listener) (*os.File, error) {
	if held, ok := l.(*heldListener); ok {
		l = held.Listener
	}
	f, ok := l.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, fmt.Errorf("listener at %s: it has no descriptor", l.Addr())
	}
	return f.File()
}
