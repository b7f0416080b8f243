package admin

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pipes are two ends of one.
func pipes(t testing.TB) (a, b *Pipe) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]*Pipe, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pipe")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = NewPipe(c.(*net.UnixConn), c.Close)
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	return ends[0], ends[1]
}

func TestPipe(t *testing.T) {
	a, b := pipes(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	long := strings.Repeat("x", 1<<20) // more than fits a socket's buffer
	done := make(chan error, 1)
	go func() {
		done <- errors.Join(a.Send("with one", int(w.Fd())), a.Send(long), a.Send("with two", int(w.Fd()), int(w.Fd())), w.Close())
	}()
	for _, want := range []struct {
		text string
		fds  int
	}{{"with one", 1}, {long, 0}, {"with two", 2}} {
		var got string
		fds, err := b.Receive(&got)
		if err != nil || got != want.text || len(fds) != want.fds {
			t.Fatalf("got %d bytes and %d descriptors, %v; want %d and %d", len(got), len(fds), err, len(want.text), want.fds)
		}
		for _, fd := range fds {
			if _, err := unix.Write(fd, []byte("y")); err != nil {
				t.Error(err)
			}
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("flags of a descriptor that came: %#x, %v", flags, err)
			}
		}
		closeFDs(fds)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if text, err := io.ReadAll(r); err != nil || string(text) != "yyy" {
		t.Errorf("through the descriptors came %q, %v", text, err)
	}
}

func TestPipeRefuses(t *testing.T) {
	frame := func(size uint32, text string) string {
		return string(binary.BigEndian.AppendUint32(nil, size)) + text
	}
	for name, sent := range map[string]string{
		"nothing":       "",
		"half a length": "\x00\x00",
		"half a text":   frame(10, `"x`),
		"too long":      frame(maxMessage+1, ""),
		"not JSON":      frame(3, "{x}"),
		"another type":  frame(2, "{}"),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pipes(t)
			b.SetTimeout(time.Second)
			rights := unix.UnixRights(0, 1)
			if sent == "" {
				rights = nil
			} else if _, _, err := a.conn.WriteMsgUnix([]byte(sent), rights, nil); err != nil {
				t.Fatal(err)
			}
			_ = a.Close()
			before := openDescriptors(t)
			var got string
			if fds, err := b.Receive(&got); err == nil || fds != nil {
				t.Errorf("received %q with %v", got, fds)
			}
			if after := openDescriptors(t); after > before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func openDescriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestPipeTimesOut(t *testing.T) {
	_, b := pipes(t)
	b.SetTimeout(10 * time.Millisecond)
	if _, err := b.Receive(new(string)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestPipeTooMuch(t *testing.T) {
	a, _ := pipes(t)
	if err := a.Send("x", make([]int, maxPipeFDs+1)...); err == nil {
		t.Error("too many descriptors were sent")
	}
	if err := a.Send(strings.Repeat("x", maxMessage)); err == nil {
		t.Error("too much text was sent")
	}
}

// FuzzPipe has a peer send whatever it likes.
func FuzzPipe(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"), true)
	f.Add([]byte("\x00\x00\x00\x04null\x00\x00\x00\x02\"\""), false)
	f.Add([]byte("\xff\xff\xff\xff"), true)
	f.Fuzz(func(t *testing.T, sent []byte, rights bool) {
		if len(sent) == 0 || len(sent) > 64<<10 {
			return
		}
		a, b := pipes(t)
		b.SetTimeout(5 * time.Second)
		var oob []byte
		if rights {
			oob = unix.UnixRights(0)
		}
		if _, _, err := a.conn.WriteMsgUnix(sent, oob, nil); err != nil {
			t.Fatal(err)
		}
		_ = a.Close()
		for {
			var got any
			fds, err := b.Receive(&got)
			if err != nil && fds != nil {
				t.Error("descriptors came with an error")
			}
			closeFDs(fds)
			if err != nil {
				return
			}
		}
	})
}
