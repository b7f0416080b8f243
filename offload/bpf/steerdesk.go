package bpf

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/baton-lb/baton/lb/steer/program"
)

// desk is where flows' first packets come to, to be let in again with an answer: see c/ask.h.
type desk struct {
	steer *Steer
	*tap
	f    func(program.Ask) program.BackendID
	done chan struct{}
}

// Asks has f answer for the flows of pools whose answer is ByPacket, one after the other, until the program is closed. The
// packets come through a device in the calling thread's network namespace.
func (s *Steer) Asks(f func(program.Ask) program.BackendID) error {
	d := &desk{steer: s, f: f, done: make(chan struct{})}
	var err error
	if d.tap, err = openTap(deskPrefix, s.flows.log, false); err != nil {
		return errors.Join(fmt.Errorf("open a desk for first packets: %w", err), d.hangUp(), d.close())
	}
	if !s.openDesk(d) {
		return errors.Join(d.hangUp(), d.close(), ErrClosed)
	}
	defer close(d.done)
	d.serve()
	return d.close()
}

func (s *Steer) openDesk(d *desk) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.desk != nil {
		return false
	}
	s.desk = d
	atomic.StoreUint32(&s.settings.Desk, uint32(d.index))
	return true
}

// closeDesk has nobody asked any more, unless another process is by now.
func (s *Steer) closeDesk(d *desk) error {
	atomic.CompareAndSwapUint32(&s.settings.Desk, uint32(d.index), 0)
	err := d.hangUp()
	<-d.done
	return err
}

// serve answers until the device is gone.
func (d *desk) serve() {
	for {
		err := d.raw.Read(func(fd uintptr) bool { return d.drain(int(fd), d.answer) > 0 })
		if err != nil {
			return
		}
	}
}

// answer lets a packet in again, with an answer if it still is a flow's first.
func (d *desk) answer(frame []byte) {
	key, ok := frameKey(frame)
	if !ok {
		return
	}
	maps, tuple := &d.steer.flows.maps, tupleOf(key.proto, key.from, key.to)
	var asked flowAsked
	if err := maps.SteerAsked.Lookup(tuple, &asked); err == nil { // else it was too long ago: the table has it
		id := d.f(program.Ask{Proto: key.proto, Client: key.from, Frontend: key.to, Pool: program.PoolID(asked.Pool)})
		if id != 0 {
			_ = maps.SteerAnswers.Put(tuple, uint32(id)) // without one the table answers
		}
	}
	_, _ = d.file.Write(frame) // it is repeated by its sender, or lost as on any link
}
