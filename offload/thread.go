package offload

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

// thread is the one OS thread on which flows stand still and are frozen. It gives
// each attempt a short round at a time, so that a flow that does not come to rest
// keeps no other waiting. It never blocks but to sleep.
type thread struct {
	// Immutable.
	wakeFD int
	unpark func(Flow)
	done   chan struct{}

	mu      sync.Mutex // guards what follows
	inbox   []*attempt
	closing bool
}

// threadNice is the priority of the thread, where the process may raise it: a flow
// that is frozen while somebody else computes hears nothing for that long.
const threadNice = -10

// lateRounds is for how many rounds after a freeze packets are let out that were held:
// one that met the shut gate may take a moment to where it waits.
const lateRounds = 3

func newThread(unpark func(Flow)) (*thread, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	t := &thread{wakeFD: fd, unpark: unpark, done: make(chan struct{})}
	go t.run()
	return t, nil
}

// try has an attempt made and waits for its verdict. Without a verdict of done the
// flow is as it was.
func (t *thread) try(a *attempt) verdict {
	t.mu.Lock()
	if t.closing {
		t.mu.Unlock()
		return verdict{result: flow.HandoffBusy, why: flow.NotOffloadedBusy}
	}
	t.inbox = append(t.inbox, a)
	t.mu.Unlock()
	t.wake()
	return <-a.verdicts
}

// close gives up the attempts that are being made, and waits for the thread. No
// other may be begun.
func (t *thread) close() error {
	t.mu.Lock()
	t.closing = true
	t.mu.Unlock()
	t.wake()
	<-t.done
	return unix.Close(t.wakeFD)
}

func (t *thread) wake() {
	_, _ = unix.Write(t.wakeFD, []byte{7: 1}) // full = it is awake
}

func (t *thread) run() {
	defer close(t.done)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and so does its priority
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), threadNice)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	buf := make([]byte, 64<<10)
	var active []*attempt
	for {
		fresh, closing := t.take()
		active = append(active, fresh...)
		if closing {
			for _, a := range active {
				t.finish(a, verdict{result: flow.HandoffBusy, why: flow.NotOffloadedBusy})
			}
			return
		}
		active = t.round(active, buf)
		t.sleep(active)
	}
}

func (t *thread) take() (fresh []*attempt, closing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh, t.inbox = t.inbox, nil
	return fresh, t.closing
}

// round gives each attempt whose time has come a turn, and returns those without a
// verdict.
func (t *thread) round(active []*attempt, buf []byte) []*attempt {
	left := active[:0]
	for _, a := range active {
		now := time.Now()
		if now.Before(a.next) {
			left = append(left, a)
			continue
		}
		freezes := a.freezes
		v, over := a.step(now, buf)
		if a.freezes > freezes {
			a.late = lateRounds
		}
		if a.late > 0 {
			a.late--
			t.unpark(a.flow)
		}
		if over {
			t.finish(a, v)
			continue
		}
		left = append(left, a)
	}
	clear(active[len(left):])
	return left
}

// finish lets go of what was held, and tells the verdict.
func (t *thread) finish(a *attempt, v verdict) {
	if v.result != flow.HandoffDone {
		a.abandon()
	}
	t.unpark(a.flow)
	v.stood = time.Since(a.began)
	a.verdicts <- v
}

// sleep waits for the next turn, or for a new attempt.
func (t *thread) sleep(active []*attempt) {
	var timeout *unix.Timespec
	if len(active) > 0 {
		next := active[0].next
		for _, a := range active[1:] {
			if a.next.Before(next) {
				next = a.next
			}
		}
		ts := unix.NsecToTimespec(int64(max(0, time.Until(next))))
		timeout = &ts
	}
	fds := []unix.PollFd{{Fd: int32(t.wakeFD), Events: unix.POLLIN}}
	if n, _ := unix.Ppoll(fds, timeout, nil); n > 0 {
		var count [8]byte
		_, _ = unix.Read(t.wakeFD, count[:])
	}
}
