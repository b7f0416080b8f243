package bpf

import (
	"errors"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/steer/program"
)

// How often the ring is looked into: nobody is woken for an event. The longer nothing happens, the less often.
const (
	shortestPoll = 5 * time.Millisecond
	longestPoll  = 20 * time.Millisecond
)

// mostEvents is how many are handed over at once.
const mostEvents = 4096

// Events calls f for what happens, until the program is closed.
func (s *Steer) Events(f func([]program.Event)) {
	s.listen(flowListeningLISTENS)
	defer s.listen(flowListeningLISTENS_NOT)
	var events []program.Event // used again and again
	wait := shortestPoll
	for {
		var err error
		events, err = s.poll(events[:0], wait)
		if len(events) > 0 {
			f(events)
		}
		if err != nil {
			return
		}
		wait = min(2*wait, longestPoll)
		if len(events) > 0 {
			wait = shortestPoll
		}
	}
}

// TellAll has everything told, and at once.
func (s *Steer) TellAll(all bool) {
	if all {
		s.listened().CompareAndSwap(uint32(flowListeningLISTENS), uint32(flowListeningLISTENS_TO_ALL))
	} else {
		s.listened().CompareAndSwap(uint32(flowListeningLISTENS_TO_ALL), uint32(flowListeningLISTENS))
	}
}

func (s *Steer) listen(to flowListening) { s.listened().Store(uint32(to)) }

func (s *Steer) listened() *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&s.settings.Listened))
}

// poll reads what there is after a time. The error is for good.
func (s *Steer) poll(events []program.Event, after time.Duration) ([]program.Event, error) {
	var r ringbuf.Record
	s.events.SetDeadline(time.Now().Add(after))
	for len(events) < mostEvents {
		err := s.events.ReadInto(&r)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return events, err
		}
		if e, ok := s.event(r.RawSample); ok {
			events = append(events, e)
		}
	}
	return events, nil
}

var kinds = [...]program.Kind{
	flowSteerHappeningSTEER_OPENED: program.Opened, flowSteerHappeningSTEER_HALF_SHUT: program.HalfShut, flowSteerHappeningSTEER_ENDED: program.Ended,
	flowSteerHappeningSTEER_FAILED: program.Failed,
}

// event reads one.
func (s *Steer) event(b []byte) (program.Event, bool) {
	var e flowSteerEvent
	if len(b) != int(unsafe.Sizeof(e)) {
		return program.Event{}, false
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), len(b)), b) // as the program has it: there are tens of thousands a second
	if int(e.Happening) >= len(kinds) {
		return program.Event{}, false
	}
	w := steeredFlow{program.Flow{
		Ref: program.Ref{
			Proto: flow.Proto(e.Protocol), Client: addrPort(e.Client, e.ClientPort), Frontend: addrPort(e.Frontend, e.FrontendPort), Born: e.Born,
		},
		Local: addrPort(e.Local, e.LocalPort), Address: addrPort(e.Backend, e.BackendPort), LastSeen: e.At,
		Service: program.ServiceID(e.Service),
	}}
	w.be(e.Whose, e.State)
	out := program.Event{Kind: kinds[e.Happening], At: e.At, Told: e.State&flowLifeStateLIFE_TOLD != 0, Open: e.State&flowLifeStateLIFE_OPEN != 0}
	if out.Kind == program.Ended {
		w.Counters = flow.Counters{
			BytesToBackend: e.Bytes[ToBackend], PacketsToBackend: e.Packets[ToBackend], BytesToClient: e.Bytes[ToClient], PacketsToClient: e.Packets[ToClient],
		}
	}
	out.Flow = w.Flow
	return out, true
}
