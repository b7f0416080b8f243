package offload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/offload/bpf"
)

// Options configures an Offloader.
type Options struct {
	Kernel   Kernel // becomes the Offloader's, also when New fails
	Registry *flow.Registry
	Log      *slog.Logger // nil = silence
	Ports    PortParams
	StateDir string // where reserved ports are remembered; "" = nowhere

	// Observe is told how long a flow stood still that has been handed off,
	// ObserveFreeze for how much of it its gate was shut to everything, Result how
	// each attempt ended. They must not block, and may be called by several goroutines
	// at once. nil = nobody is told.
	Observe       func(time.Duration)
	ObserveFreeze func(time.Duration)
	Result        func(flow.PathName, flow.HandoffResult)

	// Adopt is asked by Offloader.Adopt about each flow of an earlier process; false
	// ends it for the given reason. nil keeps all.
	Adopt func(Adopted) (keep bool, why flow.Reason)
}

// Adopted is a TCP flow that an earlier process has handed off.
type Adopted struct {
	Service                   string
	Client, Frontend, Backend netip.AddrPort
	Record                    *flow.Record
}

// Offloader hands flows over to the kernel. It implements handoff.Offloader.
type Offloader struct {
	// Immutable after New.
	Options
	kernel      Kernel
	log         *slog.Logger
	ports       *ports
	reservation *reservation
	routes      *routes
	resets      *resetter
	tracking    *tracking
	wheel       *wheel
	thread      *thread
	graces      graces
	wake        chan struct{} // of one place
	standing    chan struct{} // a place for each flow that may stand still at a time

	tasks  sync.WaitGroup // attempts and ends
	reader sync.WaitGroup // of events

	// alive is held for reading while a flow of the kernel is looked at that a call
	// from outside may reach after Close.
	alive sync.RWMutex
	gone  bool // the kernel is closed

	left atomic.Bool // Close was called

	mu      sync.Mutex // guards what follows
	leases  map[flow.ID]*lease
	queued  []*lease
	trying  int
	paths   map[Flow]*path
	kept    []handoff.Kept
	udp     int
	ends    []endRequest
	ending  bool // a goroutine works on ends
	noMore  bool // attempts
	closing bool
}

var _ handoff.Offloader = (*Offloader)(nil)

// mostTrying is how many attempts are made at a time: most wait for a grace period, or
// for the data path. mostStanding is at how many flows nothing moves meanwhile.
const (
	mostTrying   = 128
	mostStanding = 32
)

// New makes an Offloader in the calling thread's network namespace and finds the
// flows that an earlier process has left in the kernel.
func New(options Options) (_ *Offloader, err error) {
	o := &Offloader{
		Options: options, kernel: options.Kernel, log: options.Log,
		wake: make(chan struct{}, 1), standing: make(chan struct{}, mostStanding), leases: make(map[flow.ID]*lease), paths: make(map[Flow]*path),
	}
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	o.wheel = newWheel(time.Now(), o.poke)
	o.graces.grace = o.kernel.Grace
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("prepare to hand flows off: %w", err), o.closeParts())
		}
	}()
	found := o.kernel.All()
	if o.ports, o.reservation, err = openPorts(o.Ports, o.StateDir, portsInUse(found)); err != nil {
		return nil, err
	}
	if o.routes, err = openRoutes(); err != nil {
		return nil, err
	}
	if o.resets, err = openResetter(); err != nil {
		return nil, err
	}
	o.tracking = openTracking(o.log)
	if o.thread, err = newThread(o.unpark); err != nil {
		return nil, err
	}
	o.adoptAll(found)
	o.reader.Go(o.readEvents)
	return o, nil
}

// Run hands flows over until ctx is done. What was handed over is looked after until
// then too.
func (o *Offloader) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if o.tick(o.now()) {
			timer.Reset(wheelTick)
		} else {
			timer.Reset(time.Hour)
		}
		select {
		case <-ctx.Done():
			o.tryNoMore()
			return nil
		case <-timer.C:
		case <-o.wake:
		}
	}
}

// tick does what is due, and reports whether there is something to wait for.
func (o *Offloader) tick(now time.Time) bool {
	left := o.wheel.advance(now)
	resting := o.ports.tidy(now)
	o.dispatch()
	return left > 0 || resting
}

// now is a time with a monotonic reading.
func (o *Offloader) now() time.Time { return time.Now() }

// poke has Run look.
func (o *Offloader) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Flows is how many flows the kernel carries.
func (o *Offloader) Flows() int {
	o.mu.Lock()
	n := o.udp
	o.mu.Unlock()
	for _, p := range o.allPaths() {
		if p.live() {
			n++
		}
	}
	return n
}

// Close gives up the attempts that are being made, and lets go of the kernel. Flows
// live on in there, and while some do their ports stay reserved; the registry lists
// them no more.
func (o *Offloader) Close() error {
	o.mu.Lock()
	if o.closing {
		o.mu.Unlock()
		return nil
	}
	o.closing = true
	o.mu.Unlock()
	o.left.Store(true)
	o.tryNoMore()
	err := o.closeParts()
	for _, p := range o.allPaths() {
		if p.record != nil {
			p.record.Leave()
		}
	}
	return err
}

func (o *Offloader) closeParts() error {
	var errs []error
	if o.thread != nil {
		errs = append(errs, o.thread.close())
	}
	o.tasks.Wait()
	o.alive.Lock()
	o.gone = true
	left, err := o.unwatchAll()
	o.alive.Unlock()
	errs = append(errs, err, o.kernel.Close())
	o.reader.Wait()
	if o.reservation != nil {
		if left.empty() {
			errs = append(errs, o.reservation.release(portSet{}))
		}
		errs = append(errs, o.reservation.close())
	}
	for _, c := range []interface{ close() error }{o.routes, o.resets, o.tracking} {
		errs = append(errs, c.close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("let go of offloaded flows: %w", err)
	}
	return nil
}

// unwatchAll takes those flows out of the kernel that it does not carry, and returns
// the ports of the others.
func (o *Offloader) unwatchAll() (left portSet, err error) {
	var carried []Flow
	var errs []error
	for _, f := range o.kernel.All() {
		if carries(f.Gate()) {
			carried = append(carried, f)
		} else {
			errs = append(errs, f.Delete())
		}
	}
	return portsInUse(carried), errors.Join(errs...)
}

func carries(g bpf.Gate) bool { return g == bpf.GateForward || g == bpf.GateReset }

// addFlow is Kernel.Add for calls that may come after Close.
func (o *Offloader) addFlow(s bpf.FlowSpec, g bpf.Gate) (Flow, error) {
	o.alive.RLock()
	defer o.alive.RUnlock()
	if o.gone {
		return nil, bpf.ErrClosed
	}
	return o.kernel.Add(s, g)
}

// unpark lets out what was held for a flow. What cannot be is repeated by its sender.
func (o *Offloader) unpark(f Flow) {
	if _, err := o.kernel.Unpark(f); err != nil && !errors.Is(err, bpf.ErrClosed) {
		o.log.Warn("let out held packets", "err", err)
	}
}

func (o *Offloader) result(r flow.HandoffResult) {
	if o.Result != nil {
		o.Result(flow.PathBPF, r)
	}
}

func (o *Offloader) observe(v *verdict) {
	if o.Observe != nil {
		o.Observe(v.stood)
	}
	if o.ObserveFreeze != nil {
		o.ObserveFreeze(v.frozen)
	}
}

// rest leaves a port alone for a while.
func (o *Offloader) rest(local, backend netip.AddrPort) {
	o.ports.rest(local, backend, o.now().Add(quarantine))
	o.poke()
}
