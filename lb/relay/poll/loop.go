package poll

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Events is a set of epoll events (EPOLLIN, EPOLLOUT, …).
type Events uint32

// What a socket can be ready for.
const (
	In    Events = unix.EPOLLIN
	Out   Events = unix.EPOLLOUT
	RdHup Events = unix.EPOLLRDHUP // the peer has closed its direction
	Hup   Events = unix.EPOLLHUP
	Err   Events = unix.EPOLLERR
	Pri   Events = unix.EPOLLPRI // there is an urgent byte among what can be read
)

// Handler is told on the loop's goroutine that its descriptor is ready.
type Handler interface{ Ready(Events) }

// Runner runs on the loop's goroutine, soon.
type Runner interface{ Run() }

// ErrClosed is returned for a loop that has been closed.
var ErrClosed = errors.New("event loop is closed")

const batch = 256 // events taken at once

// Loop waits for descriptors and timers. All methods but Post, Close and Load
// are for its own goroutine only.
type Loop struct {
	// Immutable.
	wakefd  int
	started time.Time

	load atomic.Int64 // see Load

	// The loop's goroutine only.
	epfd     int    // -1 once Run has returned
	handlers []slot // by descriptor
	timers   timerHeap
	soon     []Runner
	running  []Runner // the other buffer of soon
	now      time.Time
	nowNano  int64 // see Nano

	mu     sync.Mutex // guards what follows
	inbox  []func()
	closed bool
	woken  bool // the eventfd has been written and not yet read
}

// slot is what one descriptor number stands for. The generation tells an event
// of a closed descriptor from one of the next that got its number.
type slot struct {
	h   Handler
	gen int32
}

// New makes a loop. Run serves it.
func New() (*Loop, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll instance: %w", err)
	}
	wakefd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epfd)
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	l := &Loop{epfd: epfd, wakefd: wakefd, started: time.Now()}
	l.tick()
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(wakefd)}
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, wakefd, &ev); err != nil {
		unix.Close(wakefd)
		unix.Close(epfd)
		return nil, fmt.Errorf("watch eventfd: %w", err)
	}
	return l, nil
}

// Add watches a socket, edge-triggered for everything.
func (l *Loop) Add(fd int, h Handler) error {
	return l.add(fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLPRI|unix.EPOLLET, h)
}

// AddReader watches a socket that is never waited for to write, edge-triggered. A
// UDP socket would report after every datagram that it can take another one.
func (l *Loop) AddReader(fd int, h Handler) error {
	return l.add(fd, unix.EPOLLIN|unix.EPOLLET, h)
}

// AddListener watches a listening socket that other loops may watch too.
func (l *Loop) AddListener(fd int, h Handler) error {
	return l.add(fd, unix.EPOLLIN|unix.EPOLLEXCLUSIVE, h)
}

func (l *Loop) add(fd int, events uint32, h Handler) error {
	for fd >= len(l.handlers) {
		l.handlers = append(l.handlers, make([]slot, max(64, len(l.handlers)))...)
	}
	s := &l.handlers[fd]
	s.h = h
	s.gen++
	ev := unix.EpollEvent{Events: events, Fd: int32(fd), Pad: s.gen}
	if err := unix.EpollCtl(l.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		s.h = nil
		return fmt.Errorf("watch descriptor %d: %w", fd, err)
	}
	return nil
}

// Forget ends the watch over a descriptor that is about to be closed: closing
// its last copy makes the kernel forget it too.
func (l *Loop) Forget(fd int) {
	if fd >= 0 && fd < len(l.handlers) {
		l.handlers[fd].h = nil
	}
}

// Remove ends the watch over a descriptor that stays open.
func (l *Loop) Remove(fd int) {
	l.Forget(fd)
	_ = unix.EpollCtl(l.epfd, unix.EPOLL_CTL_DEL, fd, nil)
}

// Soon runs r after the events at hand, before waiting again: for work that
// has used up its share of this round.
func (l *Loop) Soon(r Runner) { l.soon = append(l.soon, r) }

// Now is the time at which the events at hand were taken.
func (l *Loop) Now() time.Time { return l.now }

// Nano is Now as nanoseconds since the loop was made. It goes on steadily when
// somebody sets the host's clock.
func (l *Loop) Nano() int64 { return l.nowNano }

// Load is a figure that the loop's user keeps (how many flows live here), to
// spread work over loops. It may be used from any goroutine.
func (l *Loop) Load() *atomic.Int64 { return &l.load }

// Post runs f on the loop's goroutine. It reports false when the loop is closed
// and f will not run.
func (l *Loop) Post(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.inbox = append(l.inbox, f)
	l.wakeLocked()
	return true
}

// Call runs f on the loop's goroutine and waits for it. It must not be called
// from that goroutine.
func (l *Loop) Call(f func()) error {
	done := make(chan struct{})
	if !l.Post(func() { defer close(done); f() }) {
		return ErrClosed
	}
	<-done
	return nil
}

// Close makes Run return, after everything posted before has run.
func (l *Loop) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.wakeLocked()
	}
}

func (l *Loop) wakeLocked() {
	if l.woken {
		return
	}
	l.woken = true
	one := [8]byte{1} // not 0 in either byte order
	_, _ = unix.Write(l.wakefd, one[:])
}

// Run serves the loop until Close.
func (l *Loop) Run() {
	defer l.release()
	var events [batch]unix.EpollEvent
	for {
		n, err := unix.EpollWait(l.epfd, events[:], l.wait())
		if err != nil && !errors.Is(err, unix.EINTR) {
			// EBADF, EFAULT, EINVAL: a bug here, not a state of the world.
			panic(fmt.Sprintf("epoll_wait: %v", err))
		}
		l.tick()
		woken := false
		for i := range max(n, 0) {
			ev := &events[i]
			if int(ev.Fd) == l.wakefd {
				woken = true
				continue
			}
			if s := l.handlers[ev.Fd]; s.h != nil && s.gen == ev.Pad {
				s.h.Ready(Events(ev.Events))
			}
		}
		l.runSoon()
		l.timers.expire(l.nowNano)
		if woken && l.readInbox() {
			return
		}
	}
}

// wait is how long epoll_wait may sleep, in milliseconds.
func (l *Loop) wait() int {
	if len(l.soon) > 0 {
		return 0
	}
	next, ok := l.timers.next()
	if !ok {
		return -1
	}
	d := time.Duration(next) - time.Since(l.started)
	if d <= 0 {
		return 0
	}
	ms := d / time.Millisecond
	if d%time.Millisecond > 0 {
		ms++ // rather late than in a round that finds nothing due
	}
	return int(min(ms, math.MaxInt32)) // epoll_wait takes a C int
}

func (l *Loop) tick() {
	l.now = time.Now()
	l.nowNano = int64(l.now.Sub(l.started))
}

func (l *Loop) runSoon() {
	l.running, l.soon = l.soon, l.running[:0]
	for i, r := range l.running {
		l.running[i] = nil
		r.Run()
	}
}

// readInbox runs what was posted and reports whether the loop is closed.
func (l *Loop) readInbox() bool {
	var counter [8]byte
	l.mu.Lock()
	_, _ = unix.Read(l.wakefd, counter[:])
	l.woken = false
	posted, closed := l.inbox, l.closed
	l.inbox = nil
	l.mu.Unlock()
	for _, f := range posted {
		f()
	}
	return closed
}

func (l *Loop) release() {
	unix.Close(l.epfd)
	l.epfd = -1 // Remove may still be called, and must not reach whoever has the number next
	unix.Close(l.wakefd)
}
