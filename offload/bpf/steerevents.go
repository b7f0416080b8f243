package bpf

import (
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/steer/program"
)

// How often the ring is looked into: nobody is woken for an event. The longer nothing happens, the less often.
const (
	shortestPoll = 2 * time.Millisecond
	longestPoll  = 16 * time.Millisecond
)

// mostEvents is how many are handed over at once.
const mostEvents = 4096

// Events calls f for what happens, until the program is closed.
func (s *Steer) Events(f func([]program.Event)) {
	atomic.StoreUint32(&s.settings.Listened, 1)
	defer atomic.StoreUint32(&s.settings.Listened, 0)
	wait := shortestPoll
	for {
		events, err := s.poll(wait)
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

// poll reads what there is after a time. The error is for good.
func (s *Steer) poll(after time.Duration) (events []program.Event, err error) {
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

var kinds = map[flowSteerHappening]program.Kind{
	flowSteerHappeningSTEER_OPENED: program.Opened, flowSteerHappeningSTEER_HALF_SHUT: program.HalfShut, flowSteerHappeningSTEER_ENDED: program.Ended,
}

// event reads one.
func (s *Steer) event(b []byte) (program.Event, bool) {
	var e flowSteerEvent
	if n, err := binary.Decode(b, binary.NativeEndian, &e); err != nil || n != len(b) {
		return program.Event{}, false
	}
	kind, ok := kinds[e.Happening]
	if !ok {
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
	if kind == program.Ended {
		w.Counters = flow.Counters{
			BytesToBackend: e.Bytes[ToBackend], PacketsToBackend: e.Packets[ToBackend], BytesToClient: e.Bytes[ToClient], PacketsToClient: e.Packets[ToClient],
		}
	}
	return program.Event{Kind: kind, Flow: w.Flow}, true
}
