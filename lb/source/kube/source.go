package kube

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// SourceName is what the source is called in its store.
const SourceName = "kubernetes"

// SourceOptions configures a Source. Store must be set; of the rest the zero value
// works.
type SourceOptions struct {
	Store *store.Store
	Log   *slog.Logger // nil = silent

	Node         string            // this node's name; "" = no endpoint is on it
	BindAddress  netip.Addr        // the node's primary address; the zero value is the Node's own
	NodePorts    NodePortAddresses // where node ports are served
	ClusterCIDRs []netip.Prefix    // of all pods; empty = those of the node are known as clients inside
	Mode         Mode              // of Services that do not say it; "" = ModeProxy

	// ObserveProgramming takes the time from a change in the cluster to when it was
	// in force; nil = nobody does.
	ObserveProgramming func(time.Duration)
	// Applied is called when what Reload has asked for is handed to the store; nil =
	// not.
	Applied func()
}

// Times of a Source.
const (
	batchEvery = 3 * time.Millisecond // at the most often, so that a burst is few rounds
	hostEvery  = 10 * time.Second     // the host's addresses are looked at, where they matter
)

// Source keeps a store as objects of Kubernetes say, from an API server (NewAPI) or
// from files (NewFiles).
type Source struct {
	// Immutable.
	o      SourceOptions
	log    *slog.Logger
	sink   *store.Source
	queue  *queue
	feeder feeder
	began  time.Time
	synced chan struct{} // closed when the store has all that there was
	told   *standing

	addresses func() []netip.Addr // of this host

	// Of the goroutine that translates.
	translator *Translator
	reserved   reserved
	host       []netip.Addr

	mu      sync.Mutex // guards what follows
	objects map[string]int
	waiting []waiting // for the store, the oldest first
	inForce time.Time // when everything that had come was so last; zero = never
	leaving bool
}

// waiting is a batch that the store has and has not programmed yet.
type waiting struct {
	revision uint64
	since    time.Time
	objects  Counts
	triggers []time.Time
}

// feeder is where objects come from.
type feeder interface {
	feed(context.Context, *Source) // until ctx ends
	reload(*Source)
	stale() time.Duration
	where(Object) string // file of an object; "" = it is in none
}

func newSource(o SourceOptions, f feeder, e *events) *Source {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.ObserveProgramming == nil {
		o.ObserveProgramming = func(time.Duration) {}
	}
	if o.Applied == nil {
		o.Applied = func() {}
	}
	s := &Source{
		o: o, log: o.Log, sink: o.Store.Source(SourceName), queue: newQueue(), feeder: f, began: time.Now(),
		synced: make(chan struct{}), told: newStanding(o.Log, e, f.where), objects: make(map[string]int),
		addresses: hostAddresses,
	}
	o.Store.OnProgrammed(s.programmed)
	return s
}

// Run follows the objects until ctx ends. It is called once.
func (s *Source) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.told.events.run(ctx, s.o.Node, s.synced) })
	wg.Go(func() { s.feeder.feed(ctx, s) })
	s.translate(ctx)
}

// Synced is closed when everything that there was at the start has been handed to
// the store.
func (s *Source) Synced() <-chan struct{} { return s.synced }

// Mute has no more events written: another process serves this node, and what is wrong
// with flows that drain here is not wrong with a Service.
func (s *Source) Mute() { s.told.events.mute() }

// Reload has files read now, changed or not (SIGHUP). It does not wait. An API
// server has told everything already.
func (s *Source) Reload() { s.feeder.reload(s) }

// translate hands over what has come, whatever came together at once.
func (s *Source) translate(ctx context.Context) {
	host := time.NewTicker(hostEvery)
	defer host.Stop()
	last := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-host.C:
			if !s.hostChanged() {
				continue
			}
		case <-s.queue.wake:
			sleep(ctx, batchEvery-time.Since(last))
		}
		if b, ok := s.queue.take(); ok {
			last = time.Now()
			s.apply(b)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// hostChanged looks at the host's addresses where node ports are served at some of
// them.
func (s *Source) hostChanged() bool {
	if s.translator == nil || len(s.o.NodePorts.Prefixes) == 0 && !s.o.NodePorts.Primary {
		return false
	}
	now := s.addresses()
	if slices.Equal(now, s.host) {
		return false
	}
	s.host = now
	s.translator.SetHost(now)
	return true
}

// hostAddresses lists the addresses of this host, sorted.
func hostAddresses() (list []netip.Addr) {
	all, _ := net.InterfaceAddrs() // none is what a host without any has
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(ip.IP); ok {
				list = append(list, addr.Unmap())
			}
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// apply translates a batch and hands it to the store.
func (s *Source) apply(b batch) {
	if s.translator == nil {
		s.translator = NewTranslator(Options{
			Node: s.o.Node, Mode: s.o.Mode, ClusterCIDRs: s.o.ClusterCIDRs, NodePortAddresses: s.o.NodePorts.on(nil, s.o.BindAddress),
		})
		s.hostChanged()
	}
	s.put(b)
	c := s.translator.Take()
	refused := s.reserved.strip(&c)
	err := s.sink.Apply(c.Upsert, c.Delete)
	s.note(b, c.Triggers)
	s.told.change(b.faults, &c, refused, serviceErrors(err))
	s.log.Debug("objects applied", "changed", len(c.Upsert), "gone", len(c.Delete))
	if b.reloaded {
		s.o.Applied()
	}
	select {
	case <-s.synced:
	default:
		s.sink.Synced()
		close(s.synced)
	}
}

// put gives the translator what is new.
func (s *Source) put(b batch) {
	if b.node != nil {
		s.translator.SetNode(b.node)
		s.translator.SetNodePortAddresses(s.o.NodePorts.on(b.node, s.o.BindAddress))
	}
	for k, svc := range b.services {
		if svc == nil {
			s.translator.DeleteService(k.Namespace, k.Name)
			s.told.forget(k)
			continue
		}
		s.translator.SetService(svc)
		s.told.know(k, svc.UID)
	}
	for k, slice := range b.slices {
		s.reserved.setSlice(k, slice)
		if slice == nil {
			s.translator.DeleteSlice(k.Namespace, k.Name)
			continue
		}
		s.translator.SetSlice(slice)
	}
}

// note remembers what waits for the store. A batch that changes nothing is in force
// as soon as what came before it is.
func (s *Source) note(b batch, triggers []time.Time) {
	w := waiting{revision: s.o.Store.Snapshot().Revision, since: cmp.Or(b.since, time.Now()), objects: b.objects()}
	for _, t := range triggers {
		if t.After(s.began) { // else it says how long we have been away
			w.triggers = append(w.triggers, t)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, w)
	s.settleLocked(s.o.Store.Stats().Programmed)
}

// programmed hears of each round of the store.
func (s *Source) programmed(r store.Round) {
	s.told.failures(s.o.Store, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked(r.Revision)
}

// settleLocked takes note of what is in force up to a revision.
func (s *Source) settleLocked(revision uint64) {
	now := time.Now()
	for len(s.waiting) > 0 && s.waiting[0].revision <= revision {
		for _, t := range s.waiting[0].triggers {
			s.o.ObserveProgramming(now.Sub(t))
		}
		s.waiting = s.waiting[1:]
		s.inForce = now
	}
}

// serviceErrors lists what a store refuses, by service.
func serviceErrors(err error) map[string]error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	byService := make(map[string]error)
	for _, e := range joined.Unwrap() {
		var se *store.ServiceError
		if errors.As(e, &se) {
			byService[se.Service] = errors.Join(byService[se.Service], se.Err)
		}
	}
	return byService
}

// objectOf is the Service whose port a service of ours is.
func objectOf(service string) types.NamespacedName {
	object, _, _ := strings.Cut(service, ":")
	namespace, name, _ := strings.Cut(object, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// faultOf is the fault of a Service behind an error of the store.
func faultOf(service string, err error) Fault {
	k := objectOf(service)
	f := Fault{Kind: kindService, Namespace: k.Namespace, Name: k.Name, Service: k.String(), Problem: err.Error()}
	var fe *lb.FieldError
	if errors.As(err, &fe) {
		f.Field, f.Problem = fe.Field, fe.Problem
	}
	return f
}
