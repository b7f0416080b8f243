package pump

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkMove compares copying with splicing by the size of what is written
// at once.
func BenchmarkMove(b *testing.B) {
	pair := tcpPairs(b)
	for _, size := range []int{64, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
		for _, pipes := range []int{0, 4} {
			name := "copy"
			if pipes > 0 {
				name = "splice"
			}
			b.Run(fmt.Sprintf("%s/%dB", name, size), func(b *testing.B) { benchmarkMove(b, pair, size, pipes) })
		}
	}
}

func benchmarkMove(b *testing.B, pair pairs, size, pipes int) {
	src, in := pair(b, 0)
	dst, out := pair(b, 0)
	k := NewKit(pipes)
	d := newDriver(b, k, src, dst)
	defer d.close()
	defer k.Close()
	message, buf := make([]byte, size), make([]byte, 1<<20)
	received := make(chan struct{})
	go func() {
		defer close(received)
		for {
			if n, err := read(out, buf); n == 0 || err != nil {
				return
			}
		}
	}()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		until := d.h.Moved() + uint64(size)
		sent := 0
		for end := time.Now().Add(patience); d.h.Moved() < until; {
			if sent < size {
				n, err := unix.SendmsgN(in, message[sent:], nil, nil, unix.MSG_DONTWAIT)
				if err == nil {
					sent += n
				}
			}
			if _, err := d.h.Move(k, 1<<20); err != nil {
				b.Fatal(err)
			}
			d.events(0)
			if time.Now().After(end) {
				b.Fatal("it stands still")
			}
		}
	}
	closeAll(src, in, dst)
	<-received
	unix.Close(out)
}
