package store

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

var (
	// ErrUnknownTarget is wrapped by Drain when nothing is called like that.
	ErrUnknownTarget = errors.New("unknown")
	// ErrNotDrained is wrapped by Undrain when the target itself is not drained.
	ErrNotDrained = errors.New("not drained")
	// ErrRunning is returned by a second Run at the same time.
	ErrRunning = errors.New("the store runs already")
	// ErrStopped is returned by Programmed when Run has returned.
	ErrStopped = errors.New("the store has stopped")
)

// Options configures a Store. The zero value works.
type Options struct {
	Registry *flow.Registry // where flows per backend are counted; nil = one of its own
	Zone     string         // the balancer's own; its backends are preferred. "" = no preference
	Log      *slog.Logger   // nil = silent

	RetryMin time.Duration // until the first retry of a failed object; 0 = 100 ms
	RetryMax time.Duration // the longest between two retries; 0 = 15 s
}

// Store holds the desired state and makes the programmers realise it.
type Store struct {
	// Immutable after New.
	registry *flow.Registry
	zone     string
	log      *slog.Logger
	retry    backoff

	snapshot atomic.Pointer[Snapshot] // stored with loop.mu held

	health healthQueue
	loop   loop

	mu      sync.Mutex // the one writer's; guards what follows
	sources map[string]*Source
	drained map[Target]struct{}
}

// New makes an empty store.
func New(o Options) *Store {
	if o.Registry == nil {
		o.Registry = flow.NewRegistry(flow.Options{})
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.RetryMin <= 0 {
		o.RetryMin = 100 * time.Millisecond
	}
	if o.RetryMax <= 0 {
		o.RetryMax = 15 * time.Second
	}
	s := &Store{
		registry: o.Registry,
		zone:     o.Zone,
		log:      o.Log,
		retry:    backoff{o.RetryMin, max(o.RetryMin, o.RetryMax)},
		sources:  make(map[string]*Source),
		drained:  make(map[Target]struct{}),
	}
	empty := &Snapshot{}
	s.snapshot.Store(empty)
	s.loop.init(empty)
	s.health.init()
	return s
}

// Snapshot is the desired state now. It is never nil, and reading it never
// waits.
func (s *Store) Snapshot() *Snapshot { return s.snapshot.Load() }

// Registry is where flows per backend are counted: the one of Options, or the
// store's own.
func (s *Store) Registry() *flow.Registry { return s.registry }
