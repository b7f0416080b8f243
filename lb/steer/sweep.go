package steer

import (
	"context"
	"time"

	"github.com/baton-lb/baton/internal/clock"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/steer/program"
)

const (
	sweepMost  = time.Second
	sweepLeast = 100 * time.Millisecond
	sweepShare = 20  // at most one part in so many of the time is spent with it
	deletePart = 512 // flows at a time
	evictAge   = time.Second
)

// sweep looks at all flows again and again: what is silent for too long ends, what is over is forgotten, and what nobody has told of is
// found.
func (s *Steer) sweep(ctx context.Context) {
	timer := time.NewTimer(sweepLeast)
	defer timer.Stop()
	var full uint64
	tried := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if s.isClosed() {
			return
		}
		began := time.Now()
		now := s.o.Program.Counts().Full
		if err := s.sweepOnce(now > full); err != nil {
			s.log.Warn("look at steered flows", "err", err)
		}
		full = now
		s.expireAsked(began)
		s.flows.forgetEnded(began.Add(-sweepMost))
		s.flows.tidySessions()
		s.refresh()
		if time.Since(tried) > againEvery {
			tried = time.Now()
			s.again()
		}
		pause := min(max(s.shortest()/4, sweepLeast), sweepMost)
		timer.Reset(max(pause, sweepShare*time.Since(began)))
	}
}

func (s *Steer) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// sweepOnce looks at every flow once. Pressed: there was no room for a new one, so what has not begun or is over makes
// room sooner.
func (s *Steer) sweepOnce(pressed bool) error {
	times, now := s.times(), uint64(clock.Monotonic())
	var (
		due    []program.Flow
		idle   []*path // UDP, of due
		seen   = make(map[*path]bool, s.flows.count.Load())
		delErr error
	)
	flush := func() bool {
		_, delErr = s.o.Program.Delete(due, false)
		for _, p := range idle {
			s.gone(p, flow.ReasonIdle)
		}
		due, idle = due[:0], idle[:0]
		return delErr == nil
	}
	began := s.flows.all()
	over := closedTime
	if pressed {
		over = evictAge
	}
	err := s.o.Program.Walk(now-min(now, uint64(over)), func(v program.Flow) bool {
		p := s.flows.get(v.Ref)
		if p != nil {
			seen[p] = true
		}
		if p != nil && v.State != program.Closed {
			p.saw(v)
		}
		if p != nil && v.State == program.HalfClosed {
			p.halfClosed(v.ClosedBy)
		}
		if s.judge(&v, p, times[v.Service], now, pressed) {
			due = append(due, v)
			if p != nil {
				idle = append(idle, p)
			}
		}
		return len(due) < deletePart || flush()
	})
	if err == nil && delErr == nil && len(due) > 0 {
		flush()
	}
	for _, p := range began {
		if err == nil && !seen[p] {
			s.gone(p, flow.ReasonEvicted)
		}
	}
	s.mu.Lock()
	s.tidyLocked()
	s.mu.Unlock()
	if err == nil {
		err = delErr
	}
	return err
}

// times of a service, also those that the program does not keep for another process.
type times struct {
	program.Times
	peerLost time.Duration
}

// times of all services, by number.
func (s *Steer) times() map[program.ServiceID]times {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[program.ServiceID]times, len(s.services))
	for _, v := range s.services {
		all[v.id] = times{v.told.Times, v.now.peerLost}
	}
	return all
}

// judge reports whether a flow is to be forgotten. Connections that are open are ended first, with a reset to both sides.
func (s *Steer) judge(v *program.Flow, p *path, t times, now uint64, pressed bool) bool {
	silent := time.Duration(now - min(v.LastSeen, now))
	is := func(limit time.Duration) bool { return limit > 0 && silent > limit }
	switch {
	case v.Proto == flow.UDP:
		life := t.UDPIdle
		if v.Counters.PacketsToBackend <= 1 {
			life /= 2 // as in mode proxy: one question, and its answer
		}
		if !is(life) {
			s.found(v, p)
			return false
		}
		return true
	case v.State == program.Opening:
		return is(t.Opening) || pressed && is(evictAge)
	case v.State == program.Closed:
		if p != nil { // whoever was to tell has not
			s.gone(p, flow.ReasonEvicted)
		}
		return is(t.Closed) || pressed && is(evictAge)
	case p != nil && p.lost(t.peerLost):
		s.expire(v, p, flow.ReasonPeerLost)
	case v.State == program.HalfClosed && is(t.HalfClosed):
		s.expire(v, p, flow.ReasonHalfClosedIdle)
	case v.State == program.Open && is(t.Idle):
		s.expire(v, p, flow.ReasonIdle)
	default:
		s.found(v, p)
	}
	return false
}

func (s *Steer) expire(v *program.Flow, p *path, why flow.Reason) {
	if p != nil {
		p.End(flow.ByBaton, why)
		return
	}
	s.reset(*v)
}

// pokeAgain is after how long peers are asked once more: one answers no more often than each half second (Linux, tcp_invalid_ratelimit),
// and either packet may be lost.
const pokeAgain = 600 * time.Millisecond

// reset ends a connection at both its peers.
func (s *Steer) reset(v program.Flow) {
	if err := s.o.Program.Reset(v.Ref); err != nil {
		s.log.Debug("reset steered flow", "client", v.Client, "err", err)
		return
	}
	if s.o.Poke == nil {
		return
	}
	poke := func() {
		_ = s.o.Poke(v.Frontend, v.Client) // who cannot be asked is reset when it sends
		_ = s.o.Poke(v.Local, v.Address)
	}
	poke()
	time.AfterFunc(pokeAgain, func() {
		if !s.isClosed() {
			poke()
		}
	})
}

// found makes a record of a flow whose beginning nobody has told.
func (s *Steer) found(v *program.Flow, p *path) {
	if p == nil {
		s.flows.begin(v, false)
	}
}

// gone ends the record of a flow if it is not there any more, or has been over for a while.
func (s *Steer) gone(p *path, why flow.Reason) {
	v, ok := s.o.Program.Lookup(p.ref)
	switch now := uint64(clock.Monotonic()); {
	case !ok:
		p.finish(program.Flow{}, false, flow.ByBaton, why)
	case v.State == program.Closed && now-min(now, v.LastSeen) > uint64(evictAge):
		p.ended(v)
	}
}
