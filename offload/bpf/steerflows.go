package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/baton-lb/baton/internal/clock"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/steer/program"
)

// Walk calls f for every flow there is, until it returns false.
func (s *Steer) Walk(since uint64, f func(program.Flow) bool) error {
	if err := s.expire(); err != nil {
		return fmt.Errorf("walk flows: %w", err)
	}
	want := wanted{since: uint32(since >> lastShift)}
	err := s.flows.eachElement(want.element, func(t flowTuple, e flowElement6) bool {
		w := s.forth(t, e)
		if w.State != program.Closed { // of those there are most, and their end has been told
			w = s.andBack(w, e)
		}
		return f(w)
	})
	if err != nil {
		return fmt.Errorf("walk flows: %w", err)
	}
	return nil
}

// wanted is which elements a walk is about: those towards backends, and of closed flows only old ones. Most are not.
type wanted struct{ since uint32 }

func (w wanted) element(of *flowWhose, l *flowLife) bool {
	const closed, gone = uint32(flowLifeStateLIFE_CLOSED), uint32(flowLifeStateLIFE_GONE)
	switch {
	case of.Steered == 0 || Direction(of.Direction) != ToBackend || l.State&gone != 0:
		return false
	case l.State&closed != 0:
		return int32(w.since-l.Last) > 0
	}
	return true
}

// Lookup finds a flow by its identity.
func (s *Steer) Lookup(r program.Ref) (program.Flow, bool) {
	t := tupleOf(r.Proto, r.Client, r.Frontend)
	e, err := s.flows.element(t)
	if err != nil || !e.steered() || e.born() != r.Born || e.Life.State&uint32(flowLifeStateLIFE_GONE) != 0 {
		return program.Flow{}, false
	}
	return s.whole(t, e), true
}

// whole is the flow of an element towards the backend. What the other one has counted is missing if it goes just now.
func (s *Steer) whole(t flowTuple, e flowElement6) program.Flow { return s.andBack(s.forth(t, e), e) }

// forth is what the element towards the backend knows.
func (s *Steer) forth(t flowTuple, e flowElement6) program.Flow {
	w := steeredOf(t, e)
	if id, ok := s.services.Load(w.Backend); ok {
		w.Service = id.(program.ServiceID)
	}
	return w.Flow
}

// andBack adds what the other element has counted.
func (s *Steer) andBack(w program.Flow, e flowElement6) program.Flow {
	if back, err := s.flows.element(steeredFlow{w}.tupleBack()); err == nil && back.born() == e.born() {
		w.Counters.BytesToClient, w.Counters.PacketsToClient = back.Life.Bytes, back.Life.Packets
	}
	return w
}

// steeredFlow is a flow with the tuple of its answers.
type steeredFlow struct{ program.Flow }

func (w steeredFlow) tupleBack() flowTuple { return tupleOf(w.Proto, w.Address, w.Local) }

func tupleOf(p flow.Proto, from, to netip.AddrPort) flowTuple {
	return flowTuple{
		Source: flowAddress(addressKey(from.Addr())), SourcePort: wirePort(from.Port()),
		Destination: flowAddress(addressKey(to.Addr())), DestinationPort: wirePort(to.Port()), Protocol: uint8(p),
	}
}

func steeredOf(t flowTuple, e flowElement6) steeredFlow {
	w := steeredFlow{program.Flow{
		Ref: program.Ref{
			Proto: flow.Proto(t.Protocol), Client: addrPort(t.Source, t.SourcePort), Frontend: addrPort(t.Destination, t.DestinationPort),
			Born: e.born(),
		},
		Local: addrPort(e.Source, e.SourcePort), Address: addrPort(e.Destination, e.DestinationPort),
		LastSeen: lastSeen(e.Life.Last, clock.Monotonic()),
		Counters: flow.Counters{BytesToBackend: e.Life.Bytes, PacketsToBackend: e.Life.Packets},
	}}
	w.be(e.Whose, flowLifeState(e.Life.State))
	return w
}

const lastShift = 20 // LAST_SHIFT

// lastSeen makes the time of what the program has written down of it.
func lastSeen(last uint32, now time.Duration) uint64 {
	steps := uint64(now) >> lastShift
	ago := int32(uint32(steps) - last) // it may have been after now was asked for
	return (steps - uint64(int64(ago))) << lastShift
}

// be fills in whose the flow is, and where it stands.
func (w *steeredFlow) be(of flowWhose, s flowLifeState) {
	w.Backend = program.BackendID(of.Of)
	w.Picked = flow.ByAlgorithm
	if flowPicked(of.Picked) == flowPickedPICKED_AFFINITY {
		w.Picked = flow.ByAffinity
	}
	const fins = flowLifeStateLIFE_FIN_CLIENT | flowLifeStateLIFE_FIN_BACKEND
	switch {
	case s&(flowLifeStateLIFE_CLOSED|flowLifeStateLIFE_GONE) != 0:
		w.State = program.Closed
	case s&fins != 0:
		w.State = program.HalfClosed
	case s&flowLifeStateLIFE_OPEN != 0:
		w.State = program.Open
	}
	w.Reset = s&(flowLifeStateLIFE_WAS_RESET|flowLifeStateLIFE_REFUSE) != 0
	switch {
	case s&flowLifeStateLIFE_BACKEND_FIRST != 0:
		w.ClosedBy = flow.ByBackend
	case s&(fins|flowLifeStateLIFE_WAS_RESET) != 0:
		w.ClosedBy = flow.ByClient
	}
}

// Delete forgets flows that still are what they were when they were read.
func (s *Steer) Delete(flows []program.Flow, alsoBusy bool) (deleted int, err error) {
	for some := range slices.Chunk(flows, len(flowOrder{}.Endings)) {
		n, err := s.deleteSome(some, alsoBusy)
		if deleted += n; err != nil {
			return deleted, fmt.Errorf("delete flows: %w", err)
		}
	}
	return deleted, nil
}

func (s *Steer) deleteSome(flows []program.Flow, alsoBusy bool) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range flows {
		s.order.Endings[i] = endingOf(w)
		s.order.Endings[i].Last, s.order.Endings[i].Busy = uint32(w.LastSeen>>lastShift), uint32(bit(alsoBusy))
	}
	s.order.Count = uint32(len(flows))
	return s.runOrder(s.flows.orders.end)
}

func endingOf(w program.Flow) flowEnding {
	forth, back := tupleOf(w.Proto, w.Client, w.Frontend), steeredFlow{w}.tupleBack()
	e := flowEnding{Forth: forth, Back: back, Born: w.Born}
	if forth.is4() {
		e.Forth4, e.Back4 = forth.four(), back.four()
	} else {
		e.Ipv6 = 1
	}
	return e
}

// Reset ends a TCP flow: what comes of it is answered with a reset.
func (s *Steer) Reset(r program.Ref) error {
	w, ok := s.Lookup(r)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order.Endings[0], s.order.Count = endingOf(w), 1
	if _, err := s.runOrder(s.flows.orders.reset); err != nil {
		return fmt.Errorf("reset flow of %s: %w", r.Client, err)
	}
	return nil
}

// expire forgets what clients' affinity has outlived. The program does not go by that: it only takes room.
func (s *Steer) expire() error {
	var (
		ages = make(map[uint32]uint64)
		now  = uint64(clock.Monotonic())
		old  []flowClientOf
	)
	err := inBatches(s.flows.maps.SteerAffinity, func(k *flowClientOf, r *flowRemembered) bool {
		age, ok := ages[k.Service]
		if !ok {
			var of flowService
			if err := s.flows.maps.SteerServices.Lookup(k.Service, &of); err == nil {
				age = of.Affinity
			}
			ages[k.Service] = age
		}
		if r.At+age < now {
			old = append(old, *k)
		}
		return true
	})
	for _, k := range old {
		err = errors.Join(err, forget(s.flows.maps.SteerAffinity, k))
	}
	return err
}
