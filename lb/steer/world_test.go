package steer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/steer/program"
	"github.com/baton-lb/baton/lb/store"
)

// world is a store whose services are steered.
type world struct {
	t        *testing.T
	kernel   *kernel
	store    *store.Store
	source   *store.Source
	registry *flow.Registry
	steer    *Steer
	stops    []func()
	noWay    atomic.Bool // to backend 0
	looked   bool        // somebody looks after choices and flows
	clients  uint16
}

var vip = lb.FrontendKey{Proto: flow.TCP, Address: netip.MustParseAddrPort("10.96.0.10:80")}

// newWorld has a process begin, with what an earlier one has left in the kernel.
func newWorld(t *testing.T, k *kernel) *world {
	t.Helper()
	w := newQuietWorld(t, k)
	k.see(func() { k.events = nil })
	w.run(func(ctx context.Context) { w.steer.Run(ctx) })
	w.looked = true
	return w
}

// newQuietWorld is newWorld where nobody looks after choices and flows.
func newQuietWorld(t *testing.T, k *kernel) *world {
	t.Helper()
	registry := flow.NewRegistry(flow.Options{})
	w := &world{t: t, kernel: k, registry: registry, store: store.New(store.Options{Registry: registry})}
	var err error
	w.steer, err = New(Options{
		Program: k, Registry: registry, Wants: func(*store.Service) bool { return true },
		Reach: func(backend netip.Addr) (netip.Addr, program.Keep, error) {
			if w.noWay.Load() && backend == backendAt(0).Addr() {
				return netip.Addr{}, program.Keep{}, errors.New("no route")
			}
			return netip.MustParseAddr("10.202.1.1"), program.Keep{}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.steer.Register(w.store)
	w.source = w.store.Source("test")
	w.run(func(ctx context.Context) { _ = w.store.Run(ctx) })
	return w
}

// run does something until stop, which waits for its end.
func (w *world) run(do func(context.Context)) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { do(ctx); close(done) }()
	w.stops = append(w.stops, func() { cancel(); <-done })
	w.t.Cleanup(w.stops[len(w.stops)-1])
}

func (w *world) stop() {
	for _, stop := range w.stops {
		stop()
	}
}

func backendAt(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 202, 1, byte(10 + i)}), 8080)
}

// web is a service with so many backends.
func web(backends int, change ...func(*lb.Service)) lb.Service {
	s := lb.Default("web")
	s.Frontends = []lb.Frontend{{FrontendKey: vip}}
	for i := range backends {
		s.Backends = append(s.Backends, lb.Backend{Address: backendAt(i), Weight: 1})
	}
	for _, do := range change {
		do(&s)
	}
	return s
}

// apply has services, and waits until the program is told.
func (w *world) apply(services ...lb.Service) {
	w.t.Helper()
	if err := w.source.Replace(services); err != nil {
		w.t.Fatal(err)
	}
	w.source.Synced()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	if err := w.store.Programmed(ctx, w.store.Snapshot().Revision); err != nil {
		w.t.Fatal(err)
	}
	if !w.looked || len(services) == 0 {
		return
	}
	w.eventually("events are read", func() (err error) {
		w.kernel.see(func() {
			if w.kernel.events == nil {
				err = errors.New("nobody reads")
			}
		})
		return err
	})
}

// begin is a new flow of a new client.
func (w *world) begin() program.Ref {
	w.t.Helper()
	r, answer := w.kernel.begin(vip, w.client())
	if r.Born == 0 {
		w.t.Fatalf("the flow met answer %d", answer)
	}
	return r
}

func (w *world) client() netip.AddrPort {
	w.clients++
	return netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), w.clients)
}

func (w *world) eventually(what string, cond func() error) {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not within 20s: %s: %v", what, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// ended waits for the end of a flow.
func (w *world) ended(r program.Ref, by flow.By, why flow.Reason) {
	w.t.Helper()
	w.eventually("the flow ends", func() error {
		for _, v := range w.registry.LastEnded() {
			if v.ID != idOf(r) {
				continue
			}
			if v.EndedBy != by || v.Reason != why {
				w.t.Fatalf("it was ended by %s (%s), want %s (%s)", v.EndedBy, v.Reason, by, why)
			}
			return nil
		}
		return fmt.Errorf("%d flows are open", w.registry.Len())
	})
}
