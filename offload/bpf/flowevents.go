package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"
)

// Happening is what the program tells of a flow.
type Happening uint32

// What it tells.
const (
	EventFirst  = Happening(flowHappeningEVENT_FIRST)   // a direction's first packet went on to the other side
	EventFIN    = Happening(flowHappeningEVENT_FIN)     // a direction is closed: its FIN is acknowledged
	EventOver   = Happening(flowHappeningEVENT_OVER)    // both are; Direction is of the one that was closed last
	EventReset  = Happening(flowHappeningEVENT_RESET)   // who sends in this direction has reset the flow
	EventStale  = Happening(flowHappeningEVENT_STALE)   // a new flow has begun with this one's addresses
	EventTooBig = Happening(flowHappeningEVENT_TOO_BIG) // a packet did not fit its way out, and the sender was told
)

func (h Happening) String() string {
	if names := [...]string{"first", "fin", "over", "reset", "stale", "too big"}; int(h) < len(names) {
		return names[h]
	}
	return "unknown"
}

// Event is something that happened to a flow. They are lost when nobody reads for long; FlowState says as much.
type Event struct {
	Flow      *Flow
	What      Happening
	Direction Direction
	MTU       int           // EventTooBig: what fits
	At        time.Duration // CLOCK_MONOTONIC_COARSE
}

// ReadEvent waits for the next event of a flow that is not deleted. One goroutine may read at a time. After Close it
// returns ErrClosed.
func (f *Flows) ReadEvent() (Event, error) {
	for {
		r, err := f.events.Read()
		switch {
		case errors.Is(err, ringbuf.ErrClosed), errors.Is(err, os.ErrClosed):
			return Event{}, ErrClosed
		case err != nil:
			return Event{}, fmt.Errorf("read event: %w", err)
		}
		if e, ok := f.event(r.RawSample); ok {
			return e, nil
		}
	}
}

func (f *Flows) event(b []byte) (Event, bool) {
	var e flowEvent
	if n, err := binary.Decode(b, binary.NativeEndian, &e); err != nil || n != len(b) || e.Direction >= flowDirectionDIRECTIONS {
		return Event{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.flows[e.Slot]
	if w == nil || w.generation != e.Generation {
		return Event{}, false
	}
	return Event{
		Flow: w, What: Happening(e.Happening), Direction: Direction(e.Direction), MTU: int(e.Value), At: time.Duration(e.At),
	}, true
}
