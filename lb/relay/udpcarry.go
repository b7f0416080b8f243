package relay

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
)

// udpPath is what carries a session from some moment on: its socket, and beside it
// perhaps a Carrier.
type udpPath struct {
	s       *udpSession
	since   flow.Counters                 // what the socket had carried before
	carrier handoff.Carrier               // nil = the socket alone
	last    atomic.Pointer[flow.Counters] // of the carrier, once it is withdrawn
}

var _ flow.Path = (*udpPath)(nil)

// Counters implements flow.Path.
func (p *udpPath) Counters() flow.Counters {
	c := p.s.Counters().Sub(p.since)
	if p.carrier != nil {
		c = c.Add(p.beside())
	}
	return c
}

// beside is what the carrier has carried.
func (p *udpPath) beside() flow.Counters {
	if last := p.last.Load(); last != nil {
		return *last
	}
	return p.carrier.Counters()
}

// End implements flow.Path.
func (p *udpPath) End(by flow.By, why flow.Reason) { p.s.End(by, why) }

// close closes the way beside the socket. It may be called more than once.
func (p *udpPath) close() flow.Counters {
	last := p.carrier.Withdraw()
	p.last.CompareAndSwap(nil, &last)
	return p.beside()
}

// carrying is a session's way beside its socket, and what led to it.
type carrying struct {
	way    *udpPath      // nil = there is none
	before flow.Counters // carried by ways that are closed, and in earlier processes
	heard  uint64        // packets to the client by this way, at the last look
	tryAt  int64         // when one may be asked for, as poll.Loop.Nano
	pause  time.Duration // between two attempts
	proven bool          // the session has been old and big enough once
}

// notAgain as the time of an attempt means that there is none before something changes.
const notAgain = math.MaxInt64

// Pauses between attempts to open a way.
const (
	firstCarryPause = time.Second
	maxCarryPause   = time.Minute
)

// carryTerms is what decides about a way; when it changes everything is decided anew.
type carryTerms struct {
	policy lb.Offload
	idle   time.Duration
	header bool
}

func (s *udpSession) carryTerms() carryTerms {
	svc := &s.fe.Service.Service
	return carryTerms{svc.Offload, svc.Timeouts.UDPIdle, s.header != nil}
}

// bound says what keeps the session's datagrams on its socket; "" = nothing here.
// A datagram with a PROXY header before it is not the same on both sides.
func (s *udpSession) bound() flow.NotOffloaded {
	switch {
	case s.fe.Service.Offload.Mode == lb.OffloadNever:
		return flow.NotOffloadedNever
	case s.proxied, s.header != nil:
		return flow.NotOffloadedHeader
	case s.u.w.r.neverOffloads():
		return flow.NotOffloadedUnavailable
	case s.shown.stays:
		return flow.NotOffloadedUnseen
	}
	return ""
}

// neverOffloads reports whether the Offloader says that it is none.
func (r *Relay) neverOffloads() bool {
	o, ok := r.offloader.(interface{ None() bool })
	return ok && o.None()
}

// planCarrying decides when a way beside the socket is asked for. In mode always
// that is with the next datagram.
func (s *udpSession) planCarrying() {
	c := &s.carrying
	c.pause = 0
	if why := s.bound(); why != "" {
		c.tryAt = notAgain
		s.rec.NotOffloaded(why)
		return
	}
	loop := s.u.w.loop
	c.tryAt = loop.Nano()
	if p := s.fe.Service.Offload; p.Mode != lb.OffloadAlways && !c.proven {
		age := max(0, loop.Now().Sub(s.rec.StartedAt())) // the loop's time may be a little older
		c.tryAt += int64(max(0, p.AfterAge-age))
		s.rec.NotOffloaded(flow.NotOffloadedWaiting)
	}
}

// carryIfBig opens a way for a session that is old enough, once it is big enough.
func (s *udpSession) carryIfBig() {
	p := s.fe.Service.Offload
	if p.Mode != lb.OffloadAlways && !s.carrying.proven {
		b := &s.carrying.before
		if n := s.bytes[toBackend].Load() + s.bytes[toClient].Load() + b.BytesToBackend + b.BytesToClient; int64(n) < p.AfterBytes {
			return
		}
	}
	s.carry(p)
}

// carry opens a way, or says why there is none.
func (s *udpSession) carry(policy lb.Offload) flow.NotOffloaded {
	c := &s.carrying
	carrier, why := s.u.w.r.offloader.Carry(handoff.Session{
		Record: s.rec, Client: s.peer, Frontend: s.local, Source: s.source, Backend: s.backend.Address,
		Policy: policy, Timeouts: s.fe.Service.Timeouts,
	})
	c.proven = true
	if carrier == nil {
		s.rec.NotOffloaded(why)
		s.tryLater(why)
		return why
	}
	c.way = &udpPath{s: s, since: s.Counters(), carrier: carrier}
	c.heard, c.tryAt, c.pause = 0, notAgain, 0
	s.rec.Attach(carrier.Name(), c.way)
	s.u.w.r.udpChanges.Add(1)
	return ""
}

// tryLater plans the next attempt after one that was refused, if the reason may
// pass.
func (s *udpSession) tryLater(why flow.NotOffloaded) {
	c := &s.carrying
	switch why {
	case flow.NotOffloadedNever, flow.NotOffloadedUnavailable, flow.NotOffloadedTerminated,
		flow.NotOffloadedHeader, flow.NotOffloadedHostLocal:
		c.tryAt = notAgain
		return
	}
	c.pause = min(max(firstCarryPause, 2*c.pause), maxCarryPause)
	c.tryAt = s.u.w.loop.Nano() + int64(c.pause)
}

// withdraw closes the way beside the socket, if there is one: from here on every
// datagram goes to the sockets.
func (s *udpSession) withdraw() {
	c := &s.carrying
	if c.way == nil {
		return
	}
	last := c.way.close()
	s.heed(last)
	c.before = c.before.Add(last)
	c.way = nil
	s.rec.Attach(flow.PathUserspace, &udpPath{s: s, since: s.Counters()})
	s.u.w.r.udpChanges.Add(1)
}

// look learns what has gone by the way beside the socket.
func (s *udpSession) look() {
	if s.carrying.way != nil {
		s.heed(s.carrying.way.beside())
	}
}

// heed takes a carrier's counters into account: the session has been active, and its
// backend well.
func (s *udpSession) heed(n flow.Counters) {
	c, loop := &s.carrying, s.u.w.loop
	if n.PacketsToClient > c.heard {
		c.heard = n.PacketsToClient
		s.answered()
	}
	s.noteFirst(toBackend, n.PacketsToBackend)
	s.noteFirst(toClient, n.PacketsToClient)
	if n.LastSeen.IsZero() {
		return
	}
	if at := loop.Nano() - int64(max(0, loop.Now().Sub(n.LastSeen))); at > s.active {
		s.active = at
		if s.group != nil && !s.closed {
			s.group.touch(s)
		}
	}
}

// questions is how many datagrams the client has sent.
func (s *udpSession) questions() uint64 {
	n := s.packets[toBackend].Load() + s.carrying.before.PacketsToBackend
	if s.carrying.way != nil {
		n += s.carrying.way.beside().PacketsToBackend
	}
	return n
}

// endReleased ends a session that was left to its carrier, for somebody who asks for it
// after all. Until then its record stays: the flow has not ended.
func (s *udpSession) endReleased(by flow.By, why flow.Reason) {
	s.carrying.way.close()
	s.rec.Finish(by, why)
}

// Handoff opens a way for the UDP session with this id now, whether or not it is old
// and big enough.
func (r *Relay) Handoff(id flow.ID) (result flow.HandoffResult, why flow.NotOffloaded, err error) {
	result = flow.HandoffEnded
	for _, w := range r.workers {
		_ = w.loop.Call(func() {
			if s := w.udp.find(id); s != nil {
				result, why = s.carryNow()
			}
		})
	}
	return result, why, nil
}

func (u *udpWorker) find(id flow.ID) *udpSession {
	for _, socket := range u.sockets {
		for _, s := range socket.sessions {
			if s.rec.ID() == id {
				return s
			}
		}
	}
	return nil
}

func (s *udpSession) carryNow() (flow.HandoffResult, flow.NotOffloaded) {
	why := s.bound()
	if why == "" && s.carrying.way == nil {
		policy := s.fe.Service.Offload
		policy.AfterAge, policy.AfterBytes = 0, 0
		why = s.carry(policy)
	}
	switch why {
	case "":
		return flow.HandoffDone, ""
	case flow.NotOffloadedFailed:
		return flow.HandoffFailed, why
	}
	return flow.HandoffRefused, why
}
