package load

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Host is where sockets are made. *testnet.Host is one.
type Host interface {
	Do(func())
}

// tick is how often a loop without events looks up, in milliseconds: whether it
// is to stop, and what has been lost.
const tick = 20

// handler is told that its descriptor is ready.
type handler interface {
	ready(events uint32)
}

// loop waits for many descriptors on one thread inside a host.
type loop struct {
	// Immutable.
	epfd    int
	onTick  func() // nil = nothing to look after
	stopped chan struct{}

	stopping atomic.Bool
	failure  atomic.Pointer[error] // the first

	// The loop's thread only.
	handlers []handler // by descriptor
}

func newLoop() (*loop, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an event loop: %w", err)
	}
	return &loop{epfd: epfd, stopped: make(chan struct{})}, nil
}

// start runs begin and then the loop, both on a thread inside the host.
func (l *loop) start(host Host, begin func() error) {
	go func() {
		defer close(l.stopped)
		defer l.closeAll()
		ran := false
		defer func() {
			if !ran {
				l.fail(errors.New("the host could not be entered"))
			}
		}()
		host.Do(func() {
			ran = true
			if err := begin(); err != nil {
				l.fail(err)
				return
			}
			l.run()
		})
	}()
}

func (l *loop) run() {
	events := make([]unix.EpollEvent, 256)
	for !l.stopping.Load() {
		n, e := epollWait(l.epfd, events, tick)
		if e != 0 && e != unix.EINTR {
			l.fail(fmt.Errorf("wait for events: %w", e))
			return
		}
		for i := range events[:n] {
			if h := l.handlers[events[i].Fd]; h != nil {
				h.ready(events[i].Events)
			}
		}
		if n == 0 && l.onTick != nil {
			l.onTick()
		}
	}
}

// add has h told what becomes of fd, which is the loop's from now on.
func (l *loop) add(fd int, events uint32, h handler) {
	for fd >= len(l.handlers) {
		l.handlers = append(l.handlers, make([]handler, max(64, len(l.handlers)))...)
	}
	l.handlers[fd] = h
	ev := unix.EpollEvent{Events: events, Fd: int32(fd)}
	if err := unix.EpollCtl(l.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		l.fail(fmt.Errorf("watch a socket: %w", err))
	}
}

// remove closes fd.
func (l *loop) remove(fd int) {
	l.handlers[fd] = nil
	sysClose(fd)
}

// fail keeps the first thing that went wrong.
func (l *loop) fail(err error) { l.failure.CompareAndSwap(nil, &err) }

// err is the first thing that went wrong.
func (l *loop) err() error {
	if p := l.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// stop ends the loop, and its connections with a reset, so that nothing which
// is still under way disturbs what comes next. It may be called more than once.
func (l *loop) stop() {
	l.stopping.Store(true)
	<-l.stopped
}

func (l *loop) closeAll() {
	for fd, h := range l.handlers {
		if h != nil {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			sysClose(fd)
		}
	}
	l.handlers = nil
	sysClose(l.epfd)
}

// threads is how many loops may run at once. To the scheduler a loop that waits
// is a goroutine that computes, so each needs a processor of its own.
const threads = 12

// Quiet prepares the process for loops: enough of Go's processors, and no
// collection of memory until the returned function is called, which also
// collects.
func Quiet() (end func()) {
	if runtime.GOMAXPROCS(0) < threads {
		runtime.GOMAXPROCS(threads)
	}
	was := debug.SetGCPercent(-1)
	return func() {
		debug.SetGCPercent(was)
		runtime.GC()
	}
}
