package bpf

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// What a lot holds at most. A gate holds for some hundred milliseconds, so that more or older frames are a mistake.
const (
	lotBytes     = 64 << 20 // together
	lotFlowBytes = 16 << 20 // of one direction of a flow
	lotAge       = 3 * time.Second
)

// Lot is where packets wait while the gate of their flow holds them, instead of being dropped and repeated by their sender
// after a fifth of a second: a TAP device, and a goroutine that keeps what arrives at it.
type Lot struct {
	// Immutable.
	*tap
	tell func(index uint32) error // where held packets are to be sent; 0 = nowhere
	done chan struct{}

	// mu guards what follows, and reading from the device: whoever has it has read all that arrived before.
	mu     sync.Mutex
	parked map[lotKey]*parked
	bytes  int
	counts LotCounts
	closed bool
}

// LotCounts is what became of frames at a lot.
type LotCounts struct {
	Parked   uint64
	Released uint64
	Expired  uint64 // nobody released them in time
	Full     uint64 // there was no room
	Strange  uint64 // not of a flow
	Failed   uint64 // could not be put back
}

// parked are the frames of one direction of a flow, in their order.
type parked struct {
	frames []parkedFrame
	bytes  int
}

type parkedFrame struct {
	at   time.Time
	data []byte // with its struct virtio_net_hdr
}

// OpenLot makes one in the calling thread's network namespace, and sends there what the gates of flows hold. Close it before
// the flows. The error wraps ErrNotSupported, ErrPermission, or says what else is in the way; handoffs go on without.
func OpenLot(f *Flows) (*Lot, error) {
	var ours uint32
	tell := func(index uint32) error {
		if index == 0 { // not where another process has one by now
			var s flowSettings
			if err := f.maps.FlowSettings.Lookup(uint32(0), &s); err != nil || s.Lot != ours {
				return err
			}
		}
		ours = index
		return f.SetLot(int(index))
	}
	return openLot(lotParams{tell: tell, log: f.log})
}

type lotParams struct {
	tell   func(index uint32) error // where held packets are to be sent: the lot's device, or 0 when it is closed
	log    *slog.Logger
	clsact bool // even where there is tcx
}

// openLot makes a lot in the calling thread's network namespace.
func openLot(p lotParams) (_ *Lot, err error) {
	l := &Lot{tell: p.tell, parked: make(map[lotKey]*parked)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open parking lot: %w", err), l.Close())
		}
	}()
	if l.tap, err = openTap(lotPrefix, p.log, p.clsact); err != nil {
		return nil, err
	}
	l.done = make(chan struct{})
	go l.read()
	return l, p.tell(uint32(l.index))
}

// read parks what arrives until the device is closed.
func (l *Lot) read() {
	defer close(l.done)
	for {
		var deadline time.Time // none while nothing is parked
		l.mu.Lock()
		l.expire(time.Now())
		if l.bytes > 0 {
			deadline = time.Now().Add(lotAge / 2)
		}
		closed := l.closed
		l.mu.Unlock()
		if closed {
			return
		}
		_ = l.file.SetReadDeadline(deadline)
		_ = l.raw.Read(func(fd uintptr) bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.parkAll(int(fd), time.Now()) > 0
		})
	}
}

// parkAll parks all that has arrived.
func (l *Lot) parkAll(fd int, now time.Time) (n int) {
	return l.drain(fd, func(frame []byte) { l.park(frame, now) })
}

func (l *Lot) park(frame []byte, now time.Time) {
	if l.closed {
		return
	}
	key, ok := frameKey(frame)
	if !ok {
		l.counts.Strange++
		return
	}
	p := l.parked[key]
	if p == nil {
		p = &parked{}
	}
	if l.bytes+len(frame) > lotBytes || p.bytes+len(frame) > lotFlowBytes {
		l.counts.Full++
		return
	}
	l.parked[key] = p
	p.frames = append(p.frames, parkedFrame{at: now, data: append([]byte(nil), frame...)})
	p.bytes += len(frame)
	l.bytes += len(frame)
	l.counts.Parked++
}

// expire drops what nobody has released in time.
func (l *Lot) expire(now time.Time) {
	for key, p := range l.parked {
		n := 0
		for n < len(p.frames) && now.Sub(p.frames[n].at) > lotAge {
			p.bytes -= len(p.frames[n].data)
			l.bytes -= len(p.frames[n].data)
			n++
		}
		p.frames = p.frames[n:]
		l.counts.Expired += uint64(n)
		if len(p.frames) == 0 {
			delete(l.parked, key)
		}
	}
}

// Release puts back what was parked for a flow, oldest first: it arrives again where it had come from, and goes the way
// that the flow's gate now says. Packets that had met the gate before it was set may still be on their way to the lot; after
// a [Grace] they are there, so call it again then.
func (l *Lot) Release(w *Flow) (n int, err error) {
	s := w.Spec()
	return l.release(newLotKey(s.Proto, s.Client, s.Frontend), newLotKey(s.Proto, s.Backend, s.Local))
}

func (l *Lot) release(keys ...lotKey) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, ErrClosed
	}
	_ = l.raw.Control(func(fd uintptr) { l.parkAll(int(fd), time.Now()) })
	var errs []error
	for _, key := range keys {
		p := l.parked[key]
		if p == nil {
			continue
		}
		delete(l.parked, key)
		l.bytes -= p.bytes
		for _, f := range p.frames {
			if _, err := l.file.Write(f.data); err != nil {
				l.counts.Failed++
				errs = append(errs, fmt.Errorf("put back a packet: %w", err))
				continue
			}
			l.counts.Released++
			n++
		}
	}
	return n, errors.Join(errs...)
}

// Counts is what became of frames so far.
func (l *Lot) Counts() LotCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Close removes the lot: from now on held packets are dropped, and so is what is still parked. It may be called more than
// once.
func (l *Lot) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.parked, l.bytes = nil, 0
	l.mu.Unlock()
	var errs []error
	if l.done != nil {
		errs = append(errs, l.tell(0))
	}
	errs = append(errs, l.hangUp())
	if l.done != nil {
		<-l.done
	}
	errs = append(errs, l.tap.close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close parking lot: %w", err)
	}
	return nil
}
