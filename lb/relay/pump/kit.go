package pump

import (
	"golang.org/x/sys/unix"
)

const (
	scratchSize = 64 << 10
	bufferSize  = 16 << 10 // of a Half that must hold copied bytes
	pipeSize    = 1 << 20  // asked for; the kernel may give less
	pipesKept   = 32       // idle pipes of a Kit
)

// Kit is what the Halves of one goroutine share: a scratch buffer, idle pipes
// and idle buffers. It is not safe for concurrent use.
type Kit struct {
	maxPipes int
	open     int // pipes that exist
	scratch  []byte
	pipes    []pipe
	buffers  [][]byte
}

// pipe is a kernel pipe with nothing in it, or its two ends while in use.
type pipe struct{ r, w int }

// NewKit makes a Kit that opens at most maxPipes pipes at once, two descriptors
// each. Without a pipe to be had bytes are copied.
func NewKit(maxPipes int) *Kit {
	return &Kit{maxPipes: maxPipes, scratch: make([]byte, scratchSize)}
}

// Pipes is how many pipes the kit has open.
func (k *Kit) Pipes() int { return k.open }

// Close closes the idle pipes.
func (k *Kit) Close() {
	for _, p := range k.pipes {
		k.closePipe(p)
	}
	k.pipes = nil
}

func (k *Kit) takePipe() (pipe, bool) {
	if n := len(k.pipes); n > 0 {
		p := k.pipes[n-1]
		k.pipes = k.pipes[:n-1]
		return p, true
	}
	if k.open >= k.maxPipes {
		return pipe{}, false
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return pipe{}, false
	}
	k.open++
	// A bigger pipe saves system calls; the default (64 KiB) also works.
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, pipeSize)
	return pipe{fds[0], fds[1]}, true
}

// putPipe takes an empty pipe back.
func (k *Kit) putPipe(p pipe) {
	if len(k.pipes) < pipesKept {
		k.pipes = append(k.pipes, p)
		return
	}
	k.closePipe(p)
}

func (k *Kit) closePipe(p pipe) {
	unix.Close(p.r)
	unix.Close(p.w)
	k.open--
}

func (k *Kit) takeBuffer() []byte {
	if n := len(k.buffers); n > 0 {
		b := k.buffers[n-1]
		k.buffers = k.buffers[:n-1]
		return b
	}
	return make([]byte, 0, bufferSize)
}

// putBuffer takes a buffer back, unless it is smaller or much bigger than those
// that takeBuffer and one read make.
func (k *Kit) putBuffer(b []byte) {
	if cap(b) >= bufferSize && cap(b) <= 2*scratchSize && len(k.buffers) < pipesKept {
		k.buffers = append(k.buffers, b[:0])
	}
}
