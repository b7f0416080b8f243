package main

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// talk is a connection to a backend that has said its name.
type talk struct {
	net.Conn
	backend string // its name
}

// connect opens a connection that stays, until it is closed or the story ends.
func (d *demo) connect(from *testnet.Host, to netip.AddrPort) *talk {
	t, err := d.tryConnect(from, to)
	d.must(fmt.Sprintf("connect from %s to %s", d.clientName(from), to), err)
	d.Cleanup(func() { t.Close() })
	return t
}

func (d *demo) tryConnect(from *testnet.Host, to netip.AddrPort) (*talk, error) {
	c, err := from.Dial("tcp", to)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(storyDeadline))
	name, err := testnet.ReadName(c)
	if err != nil {
		c.Close()
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	return &talk{c, name}, nil
}

// alive proves that the connection still carries bytes both ways.
func (t *talk) alive() error {
	_ = t.SetDeadline(time.Now().Add(storyDeadline))
	return testnet.Ask(t.Conn, "are you still there?")
}

// ask connects n times, one after the other, and returns who has answered.
func (d *demo) ask(from *testnet.Host, to netip.AddrPort, n int) (names []string) {
	for range n {
		t, err := d.tryConnect(from, to)
		d.must(fmt.Sprintf("connect from %s to %s", d.clientName(from), to), err)
		t.Close()
		names = append(names, t.backend)
	}
	return names
}

// counted writes who has answered how often: "backend1 2, backend3 1".
func counted(names []string) string {
	times := make(map[string]int)
	for _, n := range names {
		times[n]++
	}
	var parts []string
	for _, n := range distinct(names) {
		parts = append(parts, fmt.Sprintf("%s %d", n, times[n]))
	}
	return strings.Join(parts, ", ")
}

// distinct are the names, sorted, each once.
func distinct(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// asker is a client that opens one connection after the other.
type asker struct {
	done chan struct{} // closed to stop it
	stop func()        // stops it and waits

	mu    sync.Mutex // held during a request; guards what follows
	names []string   // who has answered
	errs  []error    // requests that nobody has answered
}

// startAsker has a client ask until it is stopped, or the story ends.
func (d *demo) startAsker(from *testnet.Host, to netip.AddrPort, every time.Duration) *asker {
	a := &asker{done: make(chan struct{})}
	var running sync.WaitGroup
	a.stop = sync.OnceFunc(func() { close(a.done); running.Wait() })
	d.Cleanup(a.stop)
	running.Go(func() {
		for {
			a.request(d, from, to)
			select {
			case <-a.done:
				return
			case <-time.After(every):
			}
		}
	})
	return a
}

func (a *asker) request(d *demo, from *testnet.Host, to netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, err := d.tryConnect(from, to)
	if err != nil {
		a.errs = append(a.errs, err)
		return
	}
	t.Close()
	a.names = append(a.names, t.backend)
}

// count is how many requests have been made.
func (a *asker) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.names) + len(a.errs)
}

// between runs f between two requests and returns what was answered before.
func (a *asker) between(f func()) (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	names, a.names = a.names, nil
	f()
	return names
}
