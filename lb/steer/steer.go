package steer

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/steer/program"
	"github.com/baton-lb/baton/lb/store"
)

// Options configures a Steer.
type Options struct {
	Program  program.Program
	Registry *flow.Registry
	Log      *slog.Logger // nil = silence

	// Wants says which services are steered; nil = Wants.
	Wants func(*store.Service) bool

	// Reach says how a backend is reached: the address of this host that clients are masked with, and whose answers to their own
	// address pass by here. It is asked when a backend comes, when its service changes, and by Refresh.
	Reach func(backend netip.Addr) (masked netip.Addr, keep program.Keep, err error)

	// Poke has a peer send an acknowledgement to the other end of its connection, so that the program has something to answer
	// with a reset; nil = peers are reset when they send the next time.
	Poke func(from, to netip.AddrPort) error
}

// Steer is a data path: it keeps the program told of what the store says, lays choices ready for it, and makes records of what
// it carries.
type Steer struct {
	o   Options
	log *slog.Logger

	begun chan struct{} // closed when the first service is known
	begin sync.Once

	asking chan struct{} // closed when there is a pool that answers by packet
	asks   atomic.Bool   // it is

	mu       sync.Mutex // guards what follows
	closed   bool
	services map[string]*service
	told     told
	numbers  numbers
	left     left // by an earlier process, until the store has delivered

	active    map[string]*service        // whose pools are in use
	behind    map[string]*store.Service  // that the program could not be told of
	lost      map[program.BackendID]bool // backends to which there is no way
	turn      []program.BackendID        // see refresh
	lingering map[string]*service        // with something that waits for its last flow
	asked     asked

	flows flows
}

type numbers struct {
	services ids[program.ServiceID]
	backends ids[program.BackendID]
	pools    ids[program.PoolID]
	sources  ids[program.SourcesID]
}

// told is which of our objects have a number.
type told struct {
	services map[program.ServiceID]*service
	backends map[program.BackendID]*backend
	pools    map[program.PoolID]*pool
}

// left is what an earlier process has told the program that nobody has asked for yet.
type left struct {
	services  map[string]program.Service
	backends  map[netip.AddrPort][]program.Backend // of any service
	pools     []program.PoolID
	sources   []program.SourcesID
	frontends map[lb.FrontendKey]bool
}

// New takes over what the program has been told before, and the flows that it carries: each has a record from then on.
func New(o Options) (*Steer, error) {
	s := &Steer{
		o: o, log: o.Log, begun: make(chan struct{}), asking: make(chan struct{}), services: make(map[string]*service), lingering: make(map[string]*service), active: make(map[string]*service),
		behind: make(map[string]*store.Service), lost: make(map[program.BackendID]bool),
		told:  told{services: make(map[program.ServiceID]*service), backends: make(map[program.BackendID]*backend), pools: make(map[program.PoolID]*pool)},
		asked: newAsked(),
	}
	if s.o.Wants == nil {
		s.o.Wants = Wants
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.flows.init(s)
	if err := s.adopt(); err != nil {
		return nil, fmt.Errorf("adopt steered flows: %w", err)
	}
	return s, nil
}

// Wants reports whether a service asks for mode steer.
func Wants(s *store.Service) bool { return s.Mode == flow.ModeSteer }

func (s *Steer) wants(v *store.Service) bool { return v != nil && s.o.Wants(v) }

// Register has the store program what it is to be told.
func (s *Steer) Register(st *store.Store) {
	st.Register(store.Backends, "steered backends", s.whileOpen(s.programBackends))
	st.Register(store.Frontends, "steered frontends", s.whileOpen(s.programFrontends))
	st.Register(store.Cleanup, "steered flows", s.whileOpen(s.programCleanup))
}

// Run looks after choices and flows until ctx is done. What is in the kernel goes on without it.
func (s *Steer) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.begun: // until a service is steered there is nothing to look after
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	go s.o.Program.Events(s.flows.happened) // until the program is closed
	wg.Go(func() { s.ask(ctx) })
	wg.Go(func() { s.beat(ctx) })
	wg.Go(func() { s.fill(ctx) })
	wg.Go(func() { s.sweep(ctx) })
}

// ask has flows answered for whose choice needs their client, once there is such a service, until the program is closed.
func (s *Steer) ask(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.asking:
	}
	go func() {
		if err := s.o.Program.Asks(s.answer); err != nil {
			s.log.Warn("no first packet comes here: what is to be chosen by packet is chosen by table", "err", err)
		}
	}()
}

// beat tells the program that we are there, and how much is to be heard. It does nothing else, so that nothing else can keep it.
func (s *Steer) beat(ctx context.Context) {
	every := time.NewTicker(program.BeatAge / 3)
	defer every.Stop()
	for {
		s.o.Program.Beat()
		s.o.Program.TellAll(s.o.Registry.Listened())
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// Close lets go of flows and choices: what is in the kernel lives on, and is somebody else's to look after. It may be called more than
// once.
func (s *Steer) Close() {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if was {
		return
	}
	for _, p := range s.flows.all() {
		p.record.Leave()
	}
}

// CloseFrontends has new flows meet the stack.
func (s *Steer) CloseFrontends() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.services {
		for k := range v.frontends {
			if err := v.dropFrontend(k); err != nil {
				s.log.Warn("close steered frontend", "frontend", k, "err", err)
			}
		}
	}
}
