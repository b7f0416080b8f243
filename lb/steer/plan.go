package steer

import (
	"net/netip"
	"time"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/steer/program"
	"github.com/baton-lb/baton/lb/store"
)

// selection is what pools differ in: those of a service with the same one are one.
type selection struct {
	lb.Selection
	none lb.NonePolicy
}

// wanted is what the program is to be told of a service, but for numbers and the ways to its backends.
type wanted struct {
	service   program.Service
	perClient int
	sessions  int // limits.udpSessions
	peerLost  time.Duration
	balance   lb.Algorithm
	backends  map[netip.AddrPort]*sched.Backend
	pools     map[selection]wantedPool
	frontends map[lb.FrontendKey]wantedFrontend
}

type wantedPool struct {
	scheduler *sched.Scheduler
	answer    program.Answer
	byAddress bool
	absent    program.Absent
	members   []*sched.Backend // that it may lead to
}

type wantedFrontend struct {
	outside, inside selection
	sources         []program.Source
	others          program.Source // that sources say nothing of
}

// How long the program keeps a flow that has not begun, and one that is over.
const (
	openingTime = 5 * time.Second
	closedTime  = 3 * time.Second
)

// plan says what a service that is to be steered asks for.
func plan(s *store.Service) wanted {
	w := wanted{
		service: program.Service{
			Name:     s.Name,
			Affinity: affinityOf(s),
			Times: program.Times{
				Opening: openingTime, Idle: s.Timeouts.Idle, HalfClosed: s.Timeouts.HalfClosed, Closed: closedTime, UDPIdle: s.Timeouts.UDPIdle,
			},
			Connections: uint32(s.Limits.Connections), Sessions: hardSessions(s.Limits.UDPSessions), NewPerSecond: uint32(s.Limits.NewPerSecond),
		},
		perClient: s.Limits.PerClient,
		sessions:  s.Limits.UDPSessions,
		peerLost:  s.Timeouts.PeerLost,
		balance:   s.Balance,
		backends:  make(map[netip.AddrPort]*sched.Backend, len(s.Pool)),
		pools:     make(map[selection]wantedPool),
		frontends: make(map[lb.FrontendKey]wantedFrontend, len(s.FrontendSet)),
	}
	for _, b := range s.Pool {
		w.backends[b.Address] = b
	}
	for _, f := range s.FrontendSet {
		if f.Frontend.Steered() {
			w.addFrontend(s, f)
		}
	}
	return w
}

func affinityOf(s *store.Service) time.Duration {
	switch {
	case s.Affinity.By == lb.NoAffinity:
		return 0
	case s.Affinity.Timeout == 0:
		return lb.DefaultAffinityTimeout
	}
	return s.Affinity.Timeout
}

func (w *wanted) addFrontend(s *store.Service, f *store.Frontend) {
	r := rulesOf(&s.Service, f.Frontend, keeps(s, f))
	sources, others := r.flatten()
	w.frontends[f.FrontendKey] = wantedFrontend{
		outside: w.addPool(s, f, false), inside: w.addPool(s, f, true), sources: sources, others: others,
	}
}

func keeps(s *store.Service, f *store.Frontend) bool {
	if f.ClientAddress != "" {
		return f.ClientAddress == lb.Transparent
	}
	return s.ClientAddress == lb.Transparent
}

func (w *wanted) addPool(s *store.Service, f *store.Frontend, inside bool) selection {
	key := selection{f.Selection(inside), f.WhenNone}
	if _, ok := w.pools[key]; ok {
		return key
	}
	p := wantedPool{scheduler: f.For(inside), byAddress: s.Balance == lb.SourceHash, answer: answerOf(s, f.For(inside), f.WhenNone)}
	if s.Steer.WhenAbsent == lb.RefuseAbsent {
		p.absent = program.RefuseNew
	}
	for _, b := range s.Pool {
		if f.May(b, inside) && p.scheduler.Allows(b) {
			p.members = append(p.members, b)
		}
	}
	w.pools[key] = p
	return key
}

// answerOf is how a flow gets its backend: out of choices made before, unless the choice depends on the client; by its first packet
// only where nothing else will do, or that is asked for.
func answerOf(s *store.Service, of *sched.Scheduler, none lb.NonePolicy) program.Answer {
	switch {
	case of.Usable() == 0 && none == lb.Drop:
		return program.Drop
	case of.Usable() == 0:
		return program.Refuse
	case s.Steer.Choose == lb.ChoosePacket, s.Steer.Choose == lb.ChooseAuto && s.Limits.PerClient > 0:
		return program.ByPacket
	case s.Steer.Choose == lb.ChooseTable, s.Balance == lb.SourceHash, s.Balance == lb.Maglev:
		return program.ByTable
	}
	return program.ByTicket
}
