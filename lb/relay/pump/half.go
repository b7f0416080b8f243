package pump

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Status is where Move has left a direction.
type Status int

const (
	// Blocked: nothing can move until a socket becomes ready.
	Blocked Status = iota
	// More: the budget is used up and there may be more at once.
	More
	// Done: the source has ended, every byte is delivered, and the
	// destination has been shut down for writing.
	Done
)

// Side is one of the two sockets of a direction.
type Side int

const (
	Source Side = iota
	Destination
)

// SideError says which socket failed, and how.
type SideError struct {
	Side Side
	Err  error // an errno
}

func (e *SideError) Error() string {
	if e.Side == Source {
		return fmt.Sprintf("read: %v", e.Err)
	}
	return fmt.Sprintf("write: %v", e.Err)
}

func (e *SideError) Unwrap() error { return e.Err }

// Half moves bytes from one socket to another. Both are non-blocking. Its
// readiness flags say what the next system call may expect; the owner sets them
// from the edge-triggered events of the sockets.
type Half struct {
	Src, Dst int

	Readable bool // Src may have bytes
	Writable bool // Dst may have room
	Ended    bool // Src has announced its end: a short read is not the last one
	Urgent   bool // Src has an urgent byte: a read stops in front of it, and is short too

	// Last says that the other direction has ended too: the owner will close Dst
	// at once, which tells its peer as much as a shutdown would.
	Last bool

	// Abortive says that the end of Src is not a clean one: when the bytes
	// before it are delivered, Dst is not shut down.
	Abortive bool

	eof      bool // Src has delivered its last byte
	done     bool
	splicing bool
	held     []byte // copied bytes that Dst had no room for
	off      int    // how many of held are delivered
	pipe     pipe
	inPipe   int // bytes in pipe; the pipe is ours while > 0
	moved    uint64
}

// NewHalf makes a direction between two sockets that are ready to be tried.
func NewHalf(src, dst int) Half {
	return Half{Src: src, Dst: dst, Readable: true, Writable: true}
}

// Moved is how many bytes Dst has taken.
func (h *Half) Moved() uint64 { return h.moved }

// Delivered counts bytes that somebody else has given to Dst meanwhile.
func (h *Half) Delivered(n uint64) { h.moved += n }

// Done reports whether the direction has ended.
func (h *Half) Done() bool { return h.done }

// Holding is how many bytes were taken from Src and not yet given to Dst.
func (h *Half) Holding() int { return len(h.held) - h.off + h.inPipe }

// EOF reports whether Src has delivered its last byte.
func (h *Half) EOF() bool { return h.eof }

// Move moves up to about budget bytes and says why it stopped.
func (h *Half) Move(k *Kit, budget int) (Status, error) {
	start := h.moved
	for !h.done {
		if h.Holding() > 0 {
			if err := h.flush(k); err != nil {
				return Blocked, err
			}
			if h.Holding() > 0 {
				return Blocked, nil
			}
		}
		if h.eof {
			return h.finish()
		}
		if !h.Readable || !h.Writable {
			return Blocked, nil
		}
		left := budget - int(h.moved-start)
		if left <= 0 {
			return More, nil
		}
		if err := h.fill(k, left); err != nil {
			return Blocked, err
		}
	}
	return Done, nil
}

// finish passes the end of Src on.
func (h *Half) finish() (Status, error) {
	h.done = true
	if h.Abortive || h.Last {
		return Done, nil
	}
	err := unix.Shutdown(h.Dst, unix.SHUT_WR)
	if err == nil {
		return Done, nil
	}
	// ENOTCONN: Dst broke before; how is still to be asked.
	if errno, _ := unix.GetsockoptInt(h.Dst, unix.SOL_SOCKET, unix.SO_ERROR); errno != 0 {
		err = unix.Errno(errno)
	}
	return Done, &SideError{Destination, err}
}

// fill takes bytes from Src, and gives them to Dst as far as it has room. It
// splices not much more than max bytes.
func (h *Half) fill(k *Kit, max int) error {
	if h.splicing {
		return h.splice(k, max)
	}
	return h.copy(k)
}

func (h *Half) copy(k *Kit) error {
	n, err := read(h.Src, k.scratch)
	if err != nil {
		return h.sourceError(err)
	}
	if n == 0 {
		h.eof = true
		return nil
	}
	if n < len(k.scratch) && !h.Ended && !h.Urgent {
		h.Readable = false // a short read has emptied the socket (epoll(7))
	}
	h.splicing = n == len(k.scratch)
	return h.give(k, k.scratch[:n])
}

// give writes b to Dst and keeps what does not fit.
func (h *Half) give(k *Kit, b []byte) error {
	n, err := write(h.Dst, b)
	h.moved += uint64(n)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return &SideError{Destination, err}
	}
	if n == len(b) {
		return nil
	}
	h.Writable = false
	h.off = 0
	h.held = append(k.takeBuffer(), b[n:]...)
	return nil
}

func (h *Half) splice(k *Kit, limit int) error {
	p, ok := k.takePipe()
	if !ok {
		h.splicing = false
		return nil
	}
	n, err := splice(h.Src, p.w, min(pipeSize, max(limit, scratchSize)))
	h.splicing = n >= scratchSize/4
	if n == 0 {
		k.putPipe(p)
		if err == nil || errors.Is(err, unix.EAGAIN) {
			// Neither means that Src has ended or is empty: in front of an
			// urgent byte a splice moves nothing, also when there is more
			// (tcp_splice_read). The next read knows.
			return nil
		}
		return h.sourceError(err)
	}
	h.pipe, h.inPipe = p, n
	return h.flush(k)
}

// sourceError sorts an error of reading Src.
func (h *Half) sourceError(err error) error {
	if errors.Is(err, unix.EAGAIN) {
		h.Readable, h.Urgent = false, false
		return nil
	}
	h.eof = true
	return &SideError{Source, err}
}

// flush gives Dst what is held.
func (h *Half) flush(k *Kit) error {
	for h.Holding() > 0 {
		if !h.Writable {
			return nil
		}
		n, err := h.flushOnce()
		h.moved += uint64(n)
		if n == 0 && err == nil {
			err = unix.EIO // the kernel never does this; it would go on for ever
		}
		if errors.Is(err, unix.EAGAIN) {
			h.Writable = false
			return nil
		}
		if err != nil {
			return &SideError{Destination, err}
		}
		h.release(k)
	}
	return nil
}

func (h *Half) flushOnce() (n int, err error) {
	if h.inPipe > 0 {
		n, err = splice(h.pipe.r, h.Dst, h.inPipe)
		h.inPipe -= n
		return n, err
	}
	n, err = write(h.Dst, h.held[h.off:])
	h.off += n
	return n, err
}

// release gives the pipe or the buffer back once it is empty.
func (h *Half) release(k *Kit) {
	if h.inPipe == 0 && h.pipe != (pipe{}) {
		k.putPipe(h.pipe)
		h.pipe = pipe{}
	}
	if h.off == len(h.held) && h.held != nil {
		k.putBuffer(h.held)
		h.held, h.off = nil, 0
	}
}

// Drop throws away what is held and ends the direction.
func (h *Half) Drop(k *Kit) {
	if h.pipe != (pipe{}) {
		k.closePipe(h.pipe) // bytes may be in it
		h.pipe, h.inPipe = pipe{}, 0
	}
	if h.held != nil {
		k.putBuffer(h.held)
		h.held, h.off = nil, 0
	}
	h.done = true
}

// Stop takes out what was read from Src and not yet given to Dst, in order. The
// Half holds nothing then and does not move until Resume.
func (h *Half) Stop(k *Kit) ([]byte, error) {
	left := append([]byte(nil), h.held[h.off:]...)
	for h.inPipe > 0 {
		n, err := read(h.pipe.r, k.scratch)
		if err != nil {
			return left, fmt.Errorf("empty a pipe of %d bytes: %w", h.inPipe, err)
		}
		left = append(left, k.scratch[:n]...)
		h.inPipe -= n
	}
	h.off = len(h.held)
	h.release(k)
	return left, nil
}

// Resume puts back what Stop took out, or what is left of it, and takes both
// sockets as ready. The bytes stay the caller's.
func (h *Half) Resume(left []byte) {
	if len(left) > 0 {
		// A copy: held goes into the pool in the end, and whoever had the flow may
		// have cut both directions out of one piece of memory.
		h.held, h.off = append([]byte(nil), left...), 0
	}
	h.Readable, h.Writable = true, true
}
