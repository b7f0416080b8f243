package pump

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// readAll reads to the end.
func readAll(fd int) (b []byte, err error) {
	buf := make([]byte, 64<<10)
	for {
		n, err := read(fd, buf)
		if n == 0 || err != nil {
			return b, err
		}
		b = append(b, buf[:n]...)
	}
}

// stream is a payload of n bytes.
func stream(n int64) []byte {
	b, _ := io.ReadAll(testnet.Stream(7, n))
	return b
}

// waitSent waits until a peer has all that was written to it.
func waitSent(t testing.TB, fd int) {
	t.Helper()
	testnet.Eventually(t, patience, "everything is acknowledged", func() error {
		if n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ); n > 0 || err != nil {
			return errors.Join(err, errors.New("bytes are in flight"))
		}
		return nil
	})
}

// sideError checks who failed, and how.
func sideError(t *testing.T, err error, side Side, errnos ...error) {
	t.Helper()
	var se *SideError
	if !errors.As(err, &se) || se.Side != side {
		t.Errorf("got %v, want an error of side %d", err, side)
		return
	}
	for _, want := range errnos {
		if errors.Is(err, want) {
			return
		}
	}
	t.Errorf("got %v, want one of %v", err, errnos)
}

// What a source has sent before it resets comes first, then the reset; nothing
// tells the destination that this was a clean end.
func TestResetOfTheSource(t *testing.T) {
	pair := tcpPairs(t)
	for _, size := range []int64{0, 1, 70_000, 400_000} {
		for _, pipes := range []int{0, 4} {
			src, in := pair(t, 1<<20)
			dst, out := pair(t, 4096)
			k := NewKit(pipes)
			d := newDriver(t, k, src, dst)
			data := stream(size)
			if _, err := write(in, data); err != nil {
				t.Fatal(err)
			}
			waitSent(t, in)
			resets(t, in)
			unix.Close(in)
			got := make(chan []byte)
			go func() { b, _ := readAll(out); got <- b }()
			sideError(t, d.pumpAll(), Source, unix.ECONNRESET)
			if d.h.Moved() != uint64(size) || d.h.Holding() != 0 || !d.h.EOF() || d.h.Done() {
				t.Errorf("%d bytes: moved %d, holding %d", size, d.h.Moved(), d.h.Holding())
			}
			d.h.Abortive = true
			if st, err := d.h.Move(k, 1); st != Done || err != nil {
				t.Errorf("after the reset: %v, %v", st, err)
			}
			var b [1]byte
			if _, err := unix.Getpeername(dst); err != nil {
				t.Errorf("the destination: %v", err)
			} else if _, _, err := unix.Recvfrom(dst, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
				t.Errorf("the destination: %v", err)
			}
			closeAll(src, dst)
			if b := <-got; !bytes.Equal(b, data) {
				t.Errorf("%d bytes: %d arrived", size, len(b))
			}
			d.close()
			unix.Close(out)
			k.Close()
		}
	}
}

// A destination that resets is the destination's fault, with bytes held for it
// or without.
func TestResetOfTheDestination(t *testing.T) {
	pair := tcpPairs(t)
	for _, size := range []int64{1, 3 << 20} {
		for _, pipes := range []int{0, 4} {
			src, in := pair(t, 0)
			dst, out := pair(t, 4096)
			k := NewKit(pipes)
			d := newDriver(t, k, src, dst)
			resets(t, out)
			unix.Close(out)
			done := make(chan struct{})
			go func() { _, _ = write(in, stream(size)); close(done) }()
			sideError(t, d.pumpAll(), Destination, unix.ECONNRESET, unix.EPIPE)
			d.h.Drop(k)
			if !d.h.Done() || d.h.Holding() != 0 {
				t.Error("a dropped direction goes on")
			}
			closeAll(src, dst)
			<-done
			d.close()
			unix.Close(in)
			k.Close()
			if k.Pipes() != 0 {
				t.Errorf("%d pipes are left", k.Pipes())
			}
		}
	}
}

// The end of the source reaches a destination that has reset before: the error
// is the reset, not what shutdown(2) makes of it.
func TestEndTowardsAResetDestination(t *testing.T) {
	pair := tcpPairs(t)
	src, in := pair(t, 0)
	dst, out := pair(t, 0)
	defer closeAll(src, dst)
	k := NewKit(1)
	resets(t, out)
	closeAll(out, in)
	testnet.Eventually(t, patience, "the reset is there", func() error {
		fds := []unix.PollFd{{Fd: int32(dst)}}
		if _, err := unix.Poll(fds, 0); err != nil || fds[0].Revents&unix.POLLERR == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	d := newDriver(t, k, src, dst)
	defer d.close()
	sideError(t, d.pumpAll(), Destination, unix.ECONNRESET)
}

// Urgent data is part of the stream where the socket says so (SO_OOBINLINE), and
// neither stops the stream nor ends it: a read and a splice stop at its mark,
// and a splice in front of the mark moves nothing.
func TestUrgentData(t *testing.T) {
	pair := tcpPairs(t)
	for _, ends := range []bool{false, true} {
		for _, before := range []int64{0, 1, 30_000, 200_000} {
			for _, pipes := range []int{0, 4} {
				src, in := pair(t, 1<<20)
				dst, out := pair(t, 1<<20)
				check(t, unix.SetsockoptInt(src, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1))
				data := stream(before + 1 + 50_000)
				sendUrgent(t, in, data, before)
				if ends {
					check(t, unix.Shutdown(in, unix.SHUT_WR))
				}
				waitSent(t, in)
				k := NewKit(pipes)
				d := newDriver(t, k, src, dst)
				if ends {
					check(t, d.pumpAll())
				}
				got := make([]byte, 0, len(data))
				buf := make([]byte, 64<<10)
				for end := time.Now().Add(patience); len(got) < len(data) && time.Now().Before(end); {
					d.events(0)
					_, err := d.h.Move(k, 1<<20)
					check(t, err)
					n, _, err := unix.Recvfrom(out, buf, unix.MSG_DONTWAIT)
					if n == 0 || err != nil && !errors.Is(err, unix.EAGAIN) {
						break
					}
					got = append(got, buf[:max(n, 0)]...)
				}
				if !bytes.Equal(got, data) {
					t.Errorf("urgent byte after %d, %d pipes, end %v: %d of %d bytes arrived", before, pipes, ends, len(got), len(data))
				}
				d.close()
				closeAll(src, in, dst, out)
				k.Close()
			}
		}
	}
}

// sendUrgent writes data, of which the byte at the given place is urgent.
func sendUrgent(t *testing.T, fd int, data []byte, at int64) {
	t.Helper()
	if at > 0 {
		if _, err := write(fd, data[:at]); err != nil {
			t.Fatal(err)
		}
	}
	check(t, unix.Sendto(fd, data[at:at+1], unix.MSG_OOB, nil))
	if _, err := write(fd, data[at+1:]); err != nil {
		t.Fatal(err)
	}
}

// A Half that has nothing to move holds no pipe and no buffer, and both are used
// again.
func TestNothingIsHeldWhileIdle(t *testing.T) {
	src, in := unixPair(t, 0)
	dst, out := unixPair(t, 0)
	defer closeAll(src, in, dst, out)
	k := NewKit(4)
	defer k.Close()
	d := newDriver(t, k, src, dst)
	defer d.close()
	for range 20 {
		sent := make(chan struct{})
		go func() { _, _ = write(in, stream(300_000)); close(sent) }()
		left := 300_000
		buf := make([]byte, 1<<20)
		for left > 0 {
			_, err := d.h.Move(k, 1<<20)
			check(t, err)
			n, _, _ := unix.Recvfrom(out, buf, unix.MSG_DONTWAIT)
			left -= max(n, 0)
			d.events(0)
		}
		<-sent
		if d.h.Holding() != 0 || d.h.held != nil || d.h.pipe != (pipe{}) {
			t.Fatalf("it holds %d bytes, %d of buffer, pipe %v", d.h.Holding(), cap(d.h.held), d.h.pipe)
		}
	}
	if k.Pipes() > 1 {
		t.Errorf("one direction has opened %d pipes", k.Pipes())
	}
}

// A Kit keeps what it is given back only up to a size: one big Resume does not
// stay in memory for ever.
func TestKitKeepsLittle(t *testing.T) {
	k := NewKit(1)
	for range 100 {
		k.putBuffer(make([]byte, 0, bufferSize))
		k.putBuffer(make([]byte, 0, 1<<20))
		k.putBuffer(make([]byte, 0, 100))
	}
	total := 0
	for _, b := range k.buffers {
		total += cap(b)
	}
	if total == 0 || total > pipesKept*2*scratchSize {
		t.Errorf("it keeps %d bytes", total)
	}
}

// One Move moves about its budget, so that no direction keeps the others waiting.
func TestBudget(t *testing.T) {
	pair := tcpPairs(t)
	src, in := pair(t, 4<<20)
	dst, out := pair(t, 4<<20)
	defer closeAll(src, in, dst, out)
	k := NewKit(1)
	defer k.Close()
	if n, err := unix.SendmsgN(in, stream(3<<20), nil, nil, unix.MSG_DONTWAIT); n < 512<<10 {
		t.Fatalf("%d bytes fit into the socket: %v", n, err)
	}
	d := newDriver(t, k, src, dst)
	defer d.close()
	for range 8 {
		before := d.h.Moved()
		st, err := d.h.Move(k, 128<<10)
		check(t, err)
		if n := d.h.Moved() - before; n > 128<<10+scratchSize {
			t.Fatalf("one move moved %d bytes (%v)", n, st)
		}
	}
}
