package pump

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// driver moves one Half as an event loop does: it knows of the sockets only
// what edge-triggered epoll says.
type driver struct {
	t    testing.TB
	h    Half
	k    *Kit
	epfd int
}

func newDriver(t testing.TB, k *Kit, src, dst int) *driver {
	t.Helper()
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	check(t, err)
	d := &driver{t: t, h: NewHalf(src, dst), k: k, epfd: epfd}
	for _, fd := range []int{src, dst} {
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET, Fd: int32(fd)}
		check(t, unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, fd, &ev))
	}
	return d
}

func (d *driver) close() { unix.Close(d.epfd) }

// events takes in what has become ready within some milliseconds.
func (d *driver) events(ms int) {
	var events [4]unix.EpollEvent
	n, err := unix.EpollWait(d.epfd, events[:], ms)
	if err != nil && !errors.Is(err, unix.EINTR) {
		d.t.Fatal(err)
	}
	for _, e := range events[:max(n, 0)] {
		if int(e.Fd) == d.h.Src {
			d.h.Readable = d.h.Readable || e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
			d.h.Ended = d.h.Ended || e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
			d.h.Urgent = d.h.Urgent || e.Events&unix.EPOLLPRI != 0
		}
		if int(e.Fd) == d.h.Dst {
			d.h.Writable = d.h.Writable || e.Events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0
		}
	}
}

// run moves until the direction has ended or failed. Between two moves it calls
// between.
func (d *driver) run(budget func() int, between func()) error {
	d.t.Helper()
	last, moved := time.Now(), d.h.Moved()
	for {
		st, err := d.h.Move(d.k, budget())
		if err != nil || st == Done {
			return err
		}
		between()
		if st == More {
			d.events(0)
			continue
		}
		d.events(20)
		if m := d.h.Moved(); m != moved {
			last, moved = time.Now(), m
		}
		if time.Since(last) > patience/2 {
			d.t.Fatalf("it stands still after %d bytes: readable %v, writable %v, ended %v, holding %d",
				moved, d.h.Readable, d.h.Writable, d.h.Ended, d.h.Holding())
		}
	}
}

// pumpAll runs a Half with a fixed budget.
func (d *driver) pumpAll() error {
	d.t.Helper()
	return d.run(func() int { return 1 << 20 }, func() {})
}
