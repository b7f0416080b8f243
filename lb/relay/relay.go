package relay

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/lb/pick"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/store"
)

// Options configures a Relay. Store is required.
type Options struct {
	Store    *store.Store
	Picker   *pick.Picker   // nil = one of its own
	Registry *flow.Registry // where flows are listed; nil = the store's
	Log      *slog.Logger   // nil = silent

	Capture  capture.Mode // SKLookup needs a Guard; Auto is SKLookup with one
	Guard    Guard        // nil = VIPs that are local by a route lead to every socket on the wildcard address
	NoGuard  error        // why there is none, for the log
	StateDir string       // where UDP sessions are kept over a restart, and see capture.RoutesParams

	Source SourceParams

	Transparency Transparency // for clientAddress: transparent; nil = addresses are masked

	Offloader   handoff.Offloader   // nil = handoff.None
	Kept        []handoff.Kept      // UDP sessions that it has carried since before this process: see Relay.Keep
	ObserveDial func(time.Duration) // how long a backend took to answer; must not block

	Loops       int // event loops; 0 = one for each CPU that Go may use, or as many as an Inheritance with UDP needs
	Descriptors int // how many the process may have open; 0 = its RLIMIT_NOFILE

	// Inherit is what another process hands over; the relay then takes nothing
	// from any socket before Begin. The descriptors are the relay's. nil = nothing.
	Inherit *Inheritance
}

func (o *Options) setDefaults() {
	if o.Picker == nil {
		o.Picker = pick.New(pick.Options{})
		o.Store.Register(store.Cleanup, "affinity", o.Picker)
	}
	if o.Registry == nil {
		o.Registry = o.Store.Registry()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Offloader == nil {
		o.Offloader = handoff.None
	}
	if in := o.Inherit; in != nil && slices.ContainsFunc(in.Sockets, func(s Inherited) bool { return s.Kind == HandedUDP }) {
		o.Loops = in.Loops
	}
	if o.Loops == 0 {
		o.Loops = runtime.GOMAXPROCS(0)
	}
}

// Relay is the userspace data path. New starts it, Close ends it.
type Relay struct {
	// Immutable.
	store        *store.Store
	picker       *pick.Picker
	registry     *flow.Registry
	log          *slog.Logger
	offloader    handoff.Offloader
	transparency Transparency // nil = none
	observe      func(time.Duration)
	sources      *sources
	budget       *budget
	workers      []*worker
	watching     context.Context // ends with Close
	stopWatch    context.CancelFunc
	running      sync.WaitGroup

	stateDir string

	routed     atomic.Pointer[map[netip.Addr]struct{}] // vips.routed, for the loops
	carried    carriedVIPs
	limits     limitTable
	udpLimits  limitTable
	saved      savedSessions
	strays     strays
	insiders   insiders
	udpTuples  udpTuples
	udpChanges atomic.Uint64 // how often UDP sessions have come, moved or gone

	mu        sync.Mutex // guards what follows
	guarding  guarding
	listeners listeners
	vips      vips
	drains    drains
	inherit   inheritance
	kept      keptSessions
	judged    bool // adopted flows have been compared with the configuration
	closing   bool
}

// New makes a relay, registers it with the store, and starts its loops. It
// listens nowhere before the store's loop runs.
func New(o Options) (_ *Relay, err error) {
	o.setDefaults()
	var in inheritance
	in.init(o.Inherit)
	defer func() {
		if err != nil {
			in.closeRest()
		}
	}()
	r := &Relay{
		store: o.Store, picker: o.Picker, registry: o.Registry, log: o.Log,
		offloader: o.Offloader, transparency: o.Transparency, observe: o.ObserveDial, stateDir: o.StateDir,
		inherit: in,
	}
	if r.sources, err = newSources(o.Source); err != nil {
		return nil, err
	}
	r.watching, r.stopWatch = context.WithCancel(context.Background())
	if err := r.guarding.init(o); err != nil {
		return nil, err
	}
	t := taking{mode: o.Capture, guarded: o.Guard != nil}
	r.listeners.init(t)
	r.vips.init(t, o.StateDir)
	if o.Inherit != nil {
		r.vips.inherit(o.Inherit.VIPs)
		r.saved.final = true // the file is the other process's yet
	}
	r.keepLocked(o.Kept)
	r.drains.init(r.endDrained)
	if n, err := r.saved.load(o.StateDir); err != nil {
		o.Log.Warn("clients of UDP services may get other backends than before", "err", err)
	} else if n > 0 {
		r.udpChanges.Add(1) // the file is to say when those were alive
	}
	var pipes int
	if r.budget, pipes, err = newBudget(o.Descriptors, o.Inherit.sockets()); err != nil {
		return nil, err
	}
	for range o.Loops {
		w, err := newWorker(r, max(1, pipes/o.Loops))
		if err != nil {
			r.closeWorkers()
			r.running.Wait()
			return nil, fmt.Errorf("make an event loop: %w", err)
		}
		r.workers = append(r.workers, w)
		r.running.Go(w.run)
	}
	r.running.Go(r.keepSaving)
	o.Store.Register(store.Frontends, "frontends", programmer(r.programFrontends))
	o.Store.Register(store.Cleanup, "flows", programmer(r.programCleanup))
	return r, nil
}

// programmer makes a method a store.Programmer.
type programmer func(context.Context, store.Change) []store.Failure

// Program implements store.Programmer.
func (p programmer) Program(ctx context.Context, c store.Change) []store.Failure { return p(ctx, c) }

// Flows is how many connections the relay holds, those included that are not
// a flow yet.
func (r *Relay) Flows() int {
	n := int64(0)
	for _, w := range r.workers {
		n += w.loop.Load().Load()
	}
	return int(n)
}

// Drain stops listening and waits until every flow has ended by itself and has
// delivered its last bytes, or ctx is done. It returns how many are left.
func (r *Relay) Drain(ctx context.Context) int {
	r.stopListening()
	r.stopUDP()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for r.Flows() > 0 || r.delivering() {
		select {
		case <-ctx.Done():
			return r.Flows()
		case <-tick.C:
		}
	}
	return 0
}

// ResetAll ends every flow with a reset.
func (r *Relay) ResetAll(why flow.Reason) {
	for _, w := range r.workers {
		_ = w.loop.Call(func() {
			for f := range w.flows {
				f.abort(flow.ByBaton, why)
			}
		})
	}
}

// Close stops listening, resets what is left, and gives everything back:
// listeners, routes, descriptors. It may be called more than once.
func (r *Relay) Close() error {
	r.stopListening()
	r.stopUDP()
	r.stopWatch()
	r.drains.close()
	r.closeWorkers()
	r.running.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inherit.closeRest()
	if r.inherit.holding { // what is there is still the other process's
		r.vips.leave()
	}
	if err := r.vips.close(); err != nil {
		return err // and what still has a route stays guarded
	}
	return r.guarding.close()
}

func (r *Relay) closeWorkers() {
	for _, w := range r.workers {
		w.loop.Close()
	}
}

// barrier waits until every loop has finished what it was at. What a loop does
// afterwards is done with the newest snapshot.
func (r *Relay) barrier() {
	for _, w := range r.workers {
		_ = w.loop.Call(func() {})
	}
}

// frontend finds what a client meant by the local address of its connection.
func (r *Relay) frontend(local netip.AddrPort) (*store.Frontend, bool) {
	return r.find(r.store.Snapshot(), lb.FrontendKey{Proto: flow.TCP, Address: local})
}

// find finds the frontend that a client has asked for. One at the wildcard address is
// at every address of this host, which VIPs that are local by a route are not; where
// there is a guard, nobody comes to it there.
func (r *Relay) find(s *store.Snapshot, k lb.FrontendKey) (*store.Frontend, bool) {
	fe, ok := s.Frontend(k)
	if !ok || !fe.Address.Addr().IsUnspecified() {
		return fe, ok
	}
	if vips := r.routed.Load(); vips != nil {
		if _, vip := (*vips)[k.Address.Addr()]; vip {
			return nil, false
		}
	}
	return fe, true
}

func (r *Relay) observeDial(d time.Duration) {
	if r.observe != nil {
		r.observe(d)
	}
}
