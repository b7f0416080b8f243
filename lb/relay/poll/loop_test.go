package poll

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Each socket's events come to its own handler, and say what happened.
func TestEventsReachTheirHandler(t *testing.T) {
	l := start(t)
	const pairs = 20
	type event struct {
		socket int
		ev     Events
	}
	got := make(chan event, 4*pairs)
	var ours, peers [pairs]int
	for i := range pairs {
		ours[i], peers[i] = socketpair(t)
	}
	defer closeAll(ours[:]...)
	on(t, l, func() {
		for i, fd := range ours {
			if err := l.Add(fd, readyFunc(func(ev Events) { got <- event{i, ev} })); err != nil {
				t.Error(err)
			}
		}
	})
	seen := make(map[int]bool)
	for range pairs { // a new socket can be written to
		e := receive(t, got)
		if e.ev != Out || seen[e.socket] {
			t.Errorf("the first event of socket %d is %#x", e.socket, e.ev)
		}
		seen[e.socket] = true
	}
	for i, fd := range peers {
		send(t, fd)
		if e := receive(t, got); e.socket != i || e.ev&In == 0 || e.ev&(RdHup|Hup|Err) != 0 {
			t.Errorf("after a byte for socket %d: %#x at socket %d", i, e.ev, e.socket)
		}
		unix.Close(fd)
		if e := receive(t, got); e.socket != i || e.ev&RdHup == 0 {
			t.Errorf("after the end of socket %d: %#x at socket %d", i, e.ev, e.socket)
		}
	}
	on(t, l, func() {
		for _, fd := range ours {
			l.Remove(fd)
		}
	})
}

// A byte that a socket already has is an event once the socket is watched.
func TestAddReportsWhatIsThere(t *testing.T) {
	l := start(t)
	a, b := socketpair(t)
	defer closeAll(a, b)
	send(t, b)
	got := make(chan Events, 1)
	on(t, l, func() { _ = l.Add(a, readyFunc(func(ev Events) { got <- ev })) })
	if ev := receive(t, got); ev&In == 0 {
		t.Errorf("got %#x", ev)
	}
}

// When the handler of one event closes another socket of the same batch, and
// its number is taken by a new one, the new one does not get the old event.
func TestStaleEventOfAReusedDescriptor(t *testing.T) {
	l := start(t)
	a, aPeer := socketpair(t)
	b, bPeer := socketpair(t)
	defer closeAll(aPeer, bPeer)
	var newPeer int
	var stale, fresh atomic.Int32
	// Whichever comes first closes the other and opens a socket of its number.
	replace := func(other int) {
		l.Forget(other)
		unix.Close(other)
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Error(err)
			return
		}
		newFD := fds[0]
		newPeer = fds[1]
		if newFD != other {
			if newPeer != other {
				t.Errorf("descriptors %v, want one to be %d", fds, other)
				return
			}
			newFD, newPeer = newPeer, newFD
		}
		_ = l.Add(newFD, readyFunc(func(ev Events) {
			if ev&In != 0 {
				stale.Add(1)
			}
			fresh.Add(1)
		}))
	}
	done := false
	handler := func(other int) Handler {
		return readyFunc(func(ev Events) {
			if ev&In != 0 && !done {
				done = true
				replace(other)
			}
		})
	}
	on(t, l, func() {
		_ = l.Add(a, handler(b))
		_ = l.Add(b, handler(a))
	})
	on(t, l, func() { // both become ready while the loop is busy: one batch
		send(t, aPeer)
		send(t, bPeer)
	})
	for range 3 { // rounds
		on(t, l, func() {})
	}
	if stale.Load() != 0 {
		t.Error("the new socket got the event of the old one")
	}
	if fresh.Load() == 0 {
		t.Error("the new socket got no event of its own")
	}
	on(t, l, func() {
		l.Forget(a)
		l.Forget(b)
	})
	closeAll(a, b, newPeer)
}

// A removed descriptor that stays open is silent, and may be added again.
func TestRemove(t *testing.T) {
	l := start(t)
	a, b := socketpair(t)
	defer closeAll(a, b)
	got := make(chan string, 8)
	named := func(name string) Handler {
		return readyFunc(func(ev Events) {
			if ev&In != 0 {
				got <- name
			}
		})
	}
	on(t, l, func() {
		_ = l.Add(a, named("first"))
		l.Remove(a)
	})
	send(t, b)
	on(t, l, func() {})
	on(t, l, func() { _ = l.Add(a, named("second")) })
	if name := receive(t, got); name != "second" {
		t.Errorf("the %s handler was called", name)
	}
}

// A descriptor that cannot be watched is an error, and leaves nothing behind.
func TestAddOfSomethingUnwatchable(t *testing.T) {
	l := start(t)
	on(t, l, func() {
		if err := l.Add(1<<14-1, readyFunc(func(Events) {})); !errors.Is(err, unix.EBADF) {
			t.Errorf("got %v, want EBADF", err)
		}
	})
}

// One connection at a listener that two loops watch is found by one of them,
// and the listener keeps telling until it is empty.
func TestSharedListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	raw, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	fd := int(raw.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	const clients = 50
	accepted := make(chan int, 2*clients)
	loops := []*Loop{start(t), start(t)}
	for _, l := range loops {
		on(t, l, func() {
			err := l.AddListener(fd, readyFunc(func(Events) {
				if c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC); err == nil { // one at a time
					unix.Close(c)
					accepted <- c
				}
			}))
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range clients {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for range clients {
		receive(t, accepted)
	}
	for _, l := range loops {
		on(t, l, func() { l.Remove(fd) })
	}
}

// What Soon is given runs once, before the loop waits again, and does not keep
// events from being served.
func TestSoonIsFair(t *testing.T) {
	l := start(t)
	a, b := socketpair(t)
	defer closeAll(a, b)
	ready := make(chan struct{}, 8)
	turns, stop := 0, false
	var again runFunc
	again = func() {
		if turns++; !stop {
			l.Soon(again)
		}
	}
	on(t, l, func() {
		_ = l.Add(a, readyFunc(func(ev Events) {
			if ev&In != 0 {
				ready <- struct{}{}
			}
		}))
		l.Soon(again) // always has something to do
	})
	send(t, b)
	receive(t, ready)
	on(t, l, func() { stop = true }) // posted work has its turn too
	on(t, l, func() {})
	on(t, l, func() {
		if turns < 2 {
			t.Errorf("it ran %d times", turns)
		}
		before := turns
		l.Soon(runFunc(func() { turns++ }))
		l.Post(func() {
			if turns != before+1 {
				t.Errorf("it ran %d times, want once", turns-before)
			}
		})
	})
	on(t, l, func() {})
}
