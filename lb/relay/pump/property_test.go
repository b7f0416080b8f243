package pump

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// run is one random transfer.
type run struct {
	size     int64
	buffer   int // of the sockets; 0 = the kernel's choice
	pipes    int
	chunk    int // the most that one write or read asks for
	stalls   bool
	stops    bool
	offloads bool // whoever stops it delivers some of the bytes itself
	seed     uint64
}

func newRun(seed uint64) (run, *rand.Rand) {
	rng := rand.New(rand.NewPCG(seed, 1))
	size := rng.Int64N(1 << (1 + rng.IntN(22)))
	return run{
		size:     size,
		buffer:   []int{0, 0, 4096, 20_000}[rng.IntN(4)],
		pipes:    rng.IntN(3),
		chunk:    1 + int(size>>11) + rng.IntN(1<<(1+rng.IntN(19))), // some 2000 pieces at most
		stalls:   rng.IntN(2) == 0,
		stops:    rng.IntN(2) == 0,
		offloads: rng.IntN(2) == 0,
		seed:     seed,
	}, rng
}

func (r run) String() string {
	type plain run // without this method
	return fmt.Sprintf("%+v", plain(r))
}

// transfer drives a Half over two pairs and checks that what comes out is what
// went in.
func transfer(t testing.TB, seed uint64, make pairs) {
	r, rng := newRun(seed)
	before := descriptors(t)
	src, in := make(t, r.buffer)
	dst, out := make(t, r.buffer)
	k := NewKit(r.pipes)
	d := newDriver(t, k, src, dst)
	var peers sync.WaitGroup
	peers.Go(func() { r.send(t, in) })
	var got testnet.Sum
	peers.Go(func() { got = r.receive(t, out) })

	byOthers := uint64(0)
	err := d.run(
		func() int { return 1 + rng.IntN(1<<(1+rng.IntN(21))) },
		func() {
			if r.stops && rng.IntN(4) == 0 {
				byOthers += d.stopAndResume(rng, r.offloads)
			}
		})
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	d.close()
	closeAll(src, dst)
	peers.Wait()
	closeAll(in, out)
	k.Close()
	if want := testnet.StreamSum(seed, r.size); got != want {
		t.Errorf("%s: got %s, want %s", r, got, want)
	}
	if m := d.h.Moved() + byOthers; m != uint64(r.size) {
		t.Errorf("%s: Moved says %d", r, m)
	}
	if n := descriptors(t) - before; n != 0 || k.Pipes() != 0 {
		t.Errorf("%s: %d descriptors are left, %d pipes", r, n, k.Pipes())
	}
}

// stopAndResume stops the Half as an Offloader does, and returns how many bytes
// the Offloader delivered itself.
func (d *driver) stopAndResume(rng *rand.Rand, offloads bool) (delivered uint64) {
	left, err := d.h.Stop(d.k)
	check(d.t, err)
	if d.h.Holding() != 0 {
		d.t.Errorf("a stopped Half holds %d bytes", d.h.Holding())
	}
	rest := left
	if offloads && len(left) > 0 {
		n, err := write(d.h.Dst, left[:1+rng.IntN(len(left))])
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			d.t.Error(err)
		}
		rest, delivered = left[n:], uint64(n)
	}
	d.h.Resume(rest)
	clear(left) // it is the caller's again
	return delivered
}

// send writes the stream in random pieces and closes its direction.
func (r run) send(t testing.TB, fd int) {
	rng := rand.New(rand.NewPCG(r.seed, 2))
	data, _ := io.ReadAll(testnet.Stream(r.seed, r.size))
	for len(data) > 0 {
		r.stall(rng)
		n, err := write(fd, data[:min(len(data), 1+rng.IntN(r.chunk))])
		if err != nil {
			t.Errorf("%s: send: %v", r, err)
			return
		}
		data = data[n:]
	}
	if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
		t.Errorf("%s: %v", r, err)
	}
}

// receive reads to the end in random pieces.
func (r run) receive(t testing.TB, fd int) testnet.Sum {
	rng := rand.New(rand.NewPCG(r.seed, 3))
	var all bytes.Buffer
	buf := make([]byte, r.chunk)
	for {
		r.stall(rng)
		n, err := read(fd, buf[:1+rng.IntN(r.chunk)])
		if err != nil {
			t.Errorf("%s: receive: %v", r, err)
		}
		if n == 0 {
			break
		}
		all.Write(buf[:n])
	}
	sum, _ := testnet.ReceiveBulk(&all)
	return sum
}

// stall keeps the other side waiting now and then.
func (r run) stall(rng *rand.Rand) {
	if r.stalls && rng.IntN(64) == 0 {
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
	}
}

// Whatever the sizes, budgets, buffers and stops: the bytes that come out are
// those that went in, in order, once, and then the end.
func TestTransfers(t *testing.T) {
	kinds := map[string]pairs{"unix": unixPair, "tcp": tcpPairs(t)}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(60) {
				if transfer(t, seed, kind); t.Failed() {
					return
				}
			}
		})
	}
}

func FuzzTransfer(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { transfer(t, seed, unixPair) })
}
