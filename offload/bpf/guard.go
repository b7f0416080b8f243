package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
)

// GuardOptions configures a Guard. The zero value works.
type GuardOptions struct {
	Frontends int // for how many there is room at first; 0 = DefaultFrontends. The tables grow by themselves
}

// DefaultFrontends is for how many frontends, and as many VIPs, a guard has room at first.
const DefaultFrontends = 4096

// Guard decides for every VIP which of its ports answer, and what answers there: an sk_lookup program that is attached to
// one network namespace. It lasts until Close, or as long as the process: then every socket that it gave packets to is gone
// too.
type Guard struct {
	// Immutable.
	silent []int // sockets that swallow what they are given

	// mu guards what follows.
	mu       sync.Mutex
	objects  guardObjects
	link     *link.NetNsLink             // kept: the collector would close it, and that detaches
	capacity int                         // of each table
	own      map[guardSlot]guardFrontend // at which steered sockets are bound
	sets     sourceSets
	closed   bool
}

// AttachGuard loads a guard and attaches it to the calling thread's network namespace. It knows no VIP yet and so touches
// no packet. The error wraps ErrNotSupported, ErrPermission, or says what else the kernel did not like.
func AttachGuard(o GuardOptions) (*Guard, error) {
	g, err := LoadGuard(o)
	if err == nil {
		err = g.Attach()
	}
	if err != nil && g != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, err
}

// LoadGuard loads a guard that sees no packet before Attach. It can be told everything meanwhile: beside another guard, one
// that knows less would refuse what that one lets through.
func LoadGuard(o GuardOptions) (_ *Guard, err error) {
	g := &Guard{capacity: max(1, cmp.Or(o.Frontends, DefaultFrontends)), own: make(map[guardSlot]guardFrontend), sets: newSourceSets()}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("attach guard: %w", explain(err, guardNeeds)), g.Close())
		}
	}()
	// Before Linux 5.11 maps count as locked memory. Where the limit cannot be lifted it may still be enough.
	_ = rlimit.RemoveMemlock()
	if g.objects, err = loadGuardTables(g.capacity, nil); err != nil {
		return nil, err
	}
	return g, g.openSilent()
}

// Attach attaches the guard to the calling thread's network namespace. The error is like AttachGuard's.
func (g *Guard) Attach() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	if err := g.attachLocked(); err != nil {
		return fmt.Errorf("attach guard: %w", explain(err, guardNeeds))
	}
	return nil
}

func (g *Guard) attachLocked() error {
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer ns.Close()
	g.link, err = link.AttachNetNs(int(ns.Fd()), g.objects.Guard)
	return err
}

// loadGuardTables loads the program with tables for capacity entries each. What else it keeps in maps it shares with the
// program before, if there is one.
func loadGuardTables(capacity int, before *guardObjects) (o guardObjects, err error) {
	spec, err := loadGuard()
	if err != nil {
		return o, err
	}
	spec.Maps[guardMapGuardFrontends].MaxEntries = uint32(capacity)
	spec.Maps[guardMapGuardVips].MaxEntries = uint32(capacity)
	var options ebpf.CollectionOptions
	if before != nil {
		options.MapReplacements = map[string]*ebpf.Map{
			guardMapGuardSockets: before.GuardSockets, guardMapGuardCounts: before.GuardCounts,
			guardMapGuardSources: before.GuardSources,
		}
	}
	err = spec.LoadAndAssign(&o, &options)
	return o, err
}

// Close detaches the guard: from now on the kernel looks for sockets as if there had never been one. It may be called more
// than once.
func (g *Guard) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	var errs []error
	if g.link != nil {
		errs = append(errs, g.link.Close())
	}
	if g.objects.Guard != nil {
		errs = append(errs, g.objects.Close())
	}
	errs = append(errs, g.closeSilent())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close guard: %w", err)
	}
	return nil
}
