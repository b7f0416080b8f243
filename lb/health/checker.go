package health

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/store"
)

// Store is where verdicts go. *store.Store is one.
type Store interface {
	SetHealth(service string, backend netip.AddrPort, h store.Health)
}

var _ Store = (*store.Store)(nil)

// Options configures a Checker. Store is required.
type Options struct {
	Store Store
	// Failing is flow.Registry.Failing, of which the Checker must be the only
	// reader; nil = no passive ejection.
	Failing <-chan *flow.Load
	Log     *slog.Logger // nil = silent

	// DialLocal is what a probe to an address is bound to: zero address or
	// port = the kernel's choice. It is asked again when what it said is taken.
	// nil = always the kernel's choice.
	DialLocal func(to netip.AddrPort) netip.AddrPort
	// Concurrency is how many probes may run at once; 0 = 512, less when the
	// descriptor limit is low.
	Concurrency int
}

// Checker probes backends and ejects those that connections find broken.
type Checker struct {
	// Immutable after New.
	store   Store
	log     *slog.Logger
	failing <-chan *flow.Load
	probe   func(context.Context, target) outcome
	limit   int
	epoch   time.Time // times are durations since then
	ctx     context.Context
	cancel  context.CancelFunc
	owned   sync.WaitGroup
	wake    chan struct{} // has one when the first alarm has changed

	mu        sync.Mutex          // guards what follows
	published lookup              // in the newest snapshot
	services  map[string]*service // with a probe, or a backend in trouble
	alarms    alarms
	line      queue // of backends whose probe is due but has no place
	running   int   // probes
	ramping   map[*backend]struct{}
	step      alarm // the next step of all ramps
	outbox    outbox
	news      news
	counts    Counts
}

// New starts a checker. Register it with the store, and Close it.
func New(o Options) *Checker {
	p := &prober{dial: dialContext, local: o.DialLocal}
	return newChecker(o, p.probe)
}

func newChecker(o Options, probe func(context.Context, target) outcome) *Checker {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Concurrency <= 0 {
		o.Concurrency = defaultConcurrency()
	}
	c := &Checker{
		store: o.Store, log: o.Log, failing: o.Failing, probe: probe, limit: o.Concurrency,
		epoch: time.Now(), wake: make(chan struct{}, 1),
		published: func(string) (*store.Service, bool) { return nil, false },
		services:  make(map[string]*service), ramping: make(map[*backend]struct{}),
		step:   alarm{ring: (*Checker).stepRamps},
		outbox: outbox{alarm: alarm{ring: (*Checker).sendAll}, last: -sendEvery, unsent: make(map[*backend]struct{})},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.owned.Go(c.run)
	return c
}

// defaultConcurrency leaves nearly all descriptors to clients and backends.
func defaultConcurrency() int {
	const most, least, part = 512, 4, 16
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return most
	}
	return int(max(least, min(most, l.Cur/part)))
}

// Close stops probing and waits until nothing runs any more. Verdicts stay as
// they are. It may be called more than once.
func (c *Checker) Close() error {
	c.cancel()
	c.owned.Wait()
	return nil
}

// restMin is the least time between two looks at the alarms: thousands of probes
// a second are begun a few at a time, instead of waking up for each.
const restMin = 5 * time.Millisecond

// run rings alarms and hears of failed connections.
func (c *Checker) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if next, ok := c.ringDue(); ok {
			timer.Reset(max(next, restMin))
		} else {
			timer.Stop()
		}
		select {
		case <-c.ctx.Done():
			return
		case <-c.wake:
		case <-timer.C:
		case l := <-c.failing:
			c.connectFailed(l)
		}
	}
}

// ringDue rings what is due, and says how long it is until the next alarm.
func (c *Checker) ringDue() (time.Duration, bool) {
	c.mu.Lock()
	defer c.unlock()
	now := c.now()
	for len(c.alarms) > 0 && c.alarms[0].at <= now {
		a := c.alarms[0]
		c.alarms.remove(a)
		a.ring(c, a.backend)
	}
	if len(c.alarms) == 0 {
		return 0, false
	}
	return c.alarms[0].at - now, true
}

func (c *Checker) now() time.Duration { return time.Since(c.epoch) }

// setAlarm has a ring at the given time, and at no other.
func (c *Checker) setAlarm(a *alarm, at time.Duration) {
	if c.alarms.set(a, at); c.alarms[0] == a {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// unlock releases mu, and then logs what there is to say.
func (c *Checker) unlock() {
	lines := c.news.take()
	c.mu.Unlock()
	for _, l := range lines {
		c.log.Log(context.Background(), l.level, l.message, l.attrs...)
	}
}
