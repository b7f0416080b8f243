package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// boundedListener accepts a limited number of connections at a time, and keeps
// a few descriptors aside for them: an operator gets through when clients have
// used up all the others.
type boundedListener struct {
	net.Listener
	slots chan struct{} // one for each connection that may be open
	left  atomic.Bool   // another process has the listener
	ended chan struct{} // closed with Close
	once  sync.Once

	mu    sync.Mutex // guards what follows
	spare []*os.File
	want  int // how many spare ones there should be
}

// spareCount is how many operators get through. More would be taken from the
// clients.
const spareCount = 4

// bound limits l to n connections. spare of them work without a free
// descriptor.
func bound(l net.Listener, n, spare int) (*boundedListener, error) {
	b := &boundedListener{Listener: l, slots: make(chan struct{}, n), ended: make(chan struct{}), want: spare}
	b.refill()
	if len(b.spare) < spare {
		b.Close()
		return nil, fmt.Errorf("keep descriptors for operators: %w", unix.EMFILE)
	}
	return b, nil
}

// Accept waits for a connection and, when there are too many, for one to go.
// That wait ends with the connections, which http.Server closes.
func (b *boundedListener) Accept() (net.Conn, error) {
	b.slots <- struct{}{}
	b.refill()
	c, err := b.Listener.Accept()
	if isExhausted(err) && b.give() {
		c, err = b.Listener.Accept()
	}
	if err != nil {
		<-b.slots
		if b.left.Load() { // the server is to finish what it has begun
			<-b.ended
		}
		return nil, err
	}
	return &boundedConn{Conn: c, free: b.free}, nil
}

func isExhausted(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// give frees one spare descriptor.
func (b *boundedListener) give() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.spare) == 0 {
		return false
	}
	last := len(b.spare) - 1
	b.spare[last].Close()
	b.spare = b.spare[:last]
	return true
}

// refill opens spare descriptors again as far as that works. One that another
// thread is quicker to take is made up for at the next connection.
func (b *boundedListener) refill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.spare) < b.want {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		b.spare = append(b.spare, f)
	}
}

func (b *boundedListener) free() {
	<-b.slots
	b.refill()
}

// leave stops to take connections. Accept then waits for Close: http.Server drops
// what it has just accepted when it is told to shut down.
func (b *boundedListener) leave() {
	b.left.Store(true)
	_ = b.Listener.Close()
}

// empty waits until no connection is open, but not for long.
func (b *boundedListener) empty(ctx context.Context) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for len(b.slots) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Close stops to listen and gives the spare descriptors back.
func (b *boundedListener) Close() error {
	b.once.Do(func() { close(b.ended) })
	b.mu.Lock()
	b.want = 0
	for _, f := range b.spare {
		f.Close()
	}
	b.spare = nil
	b.mu.Unlock()
	return b.Listener.Close()
}

type boundedConn struct {
	net.Conn
	once sync.Once
	free func()
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.free)
	return err
}
