package admin

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOperatorGetsThrough takes every descriptor of the process, and then asks.
func TestOperatorGetsThrough(t *testing.T) {
	in := newInstance(t)
	for i := range 2 * spareCount { // what was given comes back
		in.eventually("all descriptors are aside", func() bool { return in.server.listeners[0].l.full() })
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		release := exhaustDescriptors(t)
		answer, err := askRaw(fd, in.socket, "GET /v1/services HTTP/1.0\r\n\r\n")
		release()
		unix.Close(fd)
		if err != nil || !strings.HasPrefix(answer, "HTTP/1.0 200") {
			t.Fatalf("ask %d: got %q, %v", i, answer, err)
		}
	}
}

func (b *boundedListener) full() bool {
	b.refill()
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.spare) == b.want
}

// exhaustDescriptors opens files until there is no descriptor left.
func exhaustDescriptors(t *testing.T) (release func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	var fds []int
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		fds = append(fds, fd)
	}
	return func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	}
}

// askRaw connects fd to a unix socket, sends a request, and reads the answer:
// net would need descriptors that are not there.
func askRaw(fd int, socket, request string) (string, error) {
	tv := unix.Timeval{Sec: 5}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return "", err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return "", err
	}
	if _, err := unix.Write(fd, []byte(request)); err != nil {
		return "", err
	}
	var answer strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil || n == 0 {
			return answer.String(), err
		}
		answer.Write(buf[:n])
	}
}

func TestBoundedListenerWaitsForASlot(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := bound(l, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var dialled [2]net.Conn
	for i := range dialled {
		if dialled[i], err = net.Dial("unix", path); err != nil {
			t.Fatal(err)
		}
		defer dialled[i].Close()
	}
	first, err := b.Accept()
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan net.Conn)
	go func() {
		c, _ := b.Accept()
		second <- c
	}()
	select {
	case <-second:
		t.Fatal("accepted two at a time")
	default:
	}
	first.Close()
	first.Close() // counts once
	c := <-second
	c.Close()
	if len(b.slots) != 0 {
		t.Errorf("%d slots taken", len(b.slots))
	}
}
