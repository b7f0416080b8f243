package steer

import (
	"errors"
	"net/netip"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/steer/program"
)

// asked are the flows whose backend was chosen at their first packet, until they have a record, or should have. Steer.mu guards it.
type asked struct {
	flows    map[askedKey]askedFlow
	byClient map[clientOf]int // TCP
}

type askedKey struct {
	proto            flow.Proto
	client, frontend netip.AddrPort
}

type askedFlow struct {
	choice  choice
	service *service
	at      time.Time
}

// clientOf is a client of a service.
type clientOf struct {
	service program.ServiceID
	client  netip.Addr
}

func newAsked() asked {
	return asked{flows: make(map[askedKey]askedFlow), byClient: make(map[clientOf]int)}
}

// answer chooses for a flow that is to begin. When its first packet comes again, so does the answer.
func (s *Steer) answer(a program.Ask) program.BackendID {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.told.pools[a.Pool]
	if s.closed || p == nil || p.asks == nil {
		return program.NoAnswer
	}
	key := askedKey{a.Proto, a.Client, a.Frontend}
	if was, ok := s.asked.flows[key]; ok {
		if b := s.told.backends[was.choice.id]; b != nil && b.told.Takes {
			return was.choice.id
		}
		s.forgetAsked(key, was)
	}
	if !s.admits(p.service, a) {
		s.o.Registry.Drop(flow.DropLimitClient)
		return program.NoFlow
	}
	p.service.weigh()
	b, err := p.asks.Pick(sched.Request{Client: a.Client})
	switch {
	case errors.Is(err, sched.ErrBackendsFull):
		s.o.Registry.Drop(flow.DropLimit)
		return program.NoFlow
	case err != nil || p.service.backends[b.Address] == nil:
		return program.NoAnswer // something has changed just now: the table knows
	}
	c := choice{p.service.backends[b.Address].told.ID, b}
	c.plan(+1) // the next choice has it in view
	s.asked.flows[key] = askedFlow{c, p.service, time.Now()}
	if a.Proto == flow.TCP {
		s.asked.byClient[clientOf{p.service.id, a.Client.Addr()}]++
	}
	return c.id
}

// admits reports whether a client may have one more connection.
func (s *Steer) admits(v *service, a program.Ask) bool {
	if v.now.perClient == 0 || a.Proto != flow.TCP {
		return true
	}
	who := clientOf{v.id, a.Client.Addr()}
	return s.flows.of(who)+s.asked.byClient[who] < v.now.perClient
}

// begunLocked forgets what was said of a flow: its record counts from now on.
func (s *Steer) begunLocked(r program.Ref) {
	key := askedKey{r.Proto, r.Client, r.Frontend}
	if was, ok := s.asked.flows[key]; ok {
		s.forgetAsked(key, was)
	}
}

func (s *Steer) begunNow(r program.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begunLocked(r)
}

func (s *Steer) forgetAsked(key askedKey, was askedFlow) {
	was.choice.plan(-1)
	delete(s.asked.flows, key)
	who := clientOf{was.service.id, key.client.Addr()}
	if n := s.asked.byClient[who]; n > 1 {
		s.asked.byClient[who] = n - 1
	} else if key.proto == flow.TCP {
		delete(s.asked.byClient, who)
	}
}

// expireAsked forgets flows that have not begun.
func (s *Steer) expireAsked(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, was := range s.asked.flows {
		if now.Sub(was.at) > openingTime {
			s.forgetAsked(key, was)
		}
	}
}
