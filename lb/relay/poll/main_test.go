package poll

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a loop until the test ends.
func start(t *testing.T) *Loop {
	t.Helper()
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run()
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l
}

// on runs f on the loop and waits for it.
func on(t *testing.T, l *Loop, f func()) {
	t.Helper()
	if err := l.Call(f); err != nil {
		t.Fatal(err)
	}
}

// socketpair makes two connected stream sockets, closed with the test unless
// the test has closed them.
func socketpair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// send writes one byte.
func send(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, []byte{1}); err != nil {
		t.Fatal(err)
	}
}

// readyFunc is a Handler, runFunc a Runner.
type (
	readyFunc func(Events)
	runFunc   func()
)

func (f readyFunc) Ready(ev Events) { f(ev) }
func (f runFunc) Run()              { f() }

// receive waits for a value.
func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(5 * time.Second):
		t.Fatal("nothing came within 5s")
	}
	return v
}

// want compares two lists.
func want[T comparable](t *testing.T, what string, got, wanted []T) {
	t.Helper()
	if !slices.Equal(got, wanted) {
		t.Errorf("%s: got %v, want %v", what, got, wanted)
	}
}
