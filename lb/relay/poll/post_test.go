package poll

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Everything that many goroutines post runs once, each one's in order.
func TestPostFromManyGoroutines(t *testing.T) {
	l := start(t)
	const posters, each = 8, 2000
	var next [posters]int
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			for i := range each {
				if !l.Post(func() {
					if next[p] != i {
						t.Errorf("poster %d: number %d ran when %d was due", p, i, next[p])
					}
					next[p]++
				}) {
					t.Error("an open loop refused")
				}
			}
		})
	}
	wg.Wait()
	on(t, l, func() {
		for p, n := range next {
			if n != each {
				t.Errorf("poster %d: %d ran, want %d", p, n, each)
			}
		}
	})
}

// What was posted before Close runs, whatever comes after is refused, and every
// Post knows which of the two it was.
func TestClose(t *testing.T) {
	for range 50 {
		l, err := New()
		if err != nil {
			t.Fatal(err)
		}
		var ran, accepted atomic.Int64
		var posters sync.WaitGroup
		for range 4 {
			posters.Go(func() {
				for l.Post(func() { ran.Add(1) }) {
					accepted.Add(1)
				}
			})
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Run()
		}()
		for accepted.Load() < 10 {
			time.Sleep(10 * time.Microsecond)
		}
		l.Close()
		l.Close()
		receive(t, done)
		posters.Wait()
		if ran.Load() != accepted.Load() {
			t.Fatalf("%d ran of %d accepted", ran.Load(), accepted.Load())
		}
		if err := l.Call(func() { t.Error("it ran") }); !errors.Is(err, ErrClosed) {
			t.Fatalf("Call after Close: %v", err)
		}
	}
}

// A loop that was closed before it ran still runs what was posted.
func TestCloseBeforeRun(t *testing.T) {
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	ran := false
	l.Post(func() { ran = true })
	l.Close()
	l.Run()
	if !ran {
		t.Error("what was posted did not run")
	}
}

// After Run has returned, Remove reaches no descriptor of anybody.
func TestRemoveAfterRun(t *testing.T) {
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	a, b := socketpair(t)
	defer closeAll(a, b)
	l.Close()
	l.Run()
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC) // takes the loop's number
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epfd)
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(a)}
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, a, &ev); err != nil {
		t.Fatal(err)
	}
	l.Remove(a)
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_DEL, a, nil); err != nil {
		t.Errorf("the descriptor is no longer watched by another instance: %v", err)
	}
}

// A loop holds two descriptors and gives them back.
func TestDescriptors(t *testing.T) {
	before := openDescriptors(t)
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if n := openDescriptors(t) - before; n != 2 {
		t.Errorf("a loop has %d descriptors, want 2", n)
	}
	l.Close()
	l.Run()
	if n := openDescriptors(t) - before; n != 0 {
		t.Errorf("%d descriptors are left", n)
	}
}

func BenchmarkPost(b *testing.B) {
	l, err := New()
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run()
	}()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		_ = l.Call(func() { n++ })
	}
	l.Close()
	<-done
}
