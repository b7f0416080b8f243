package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
)

// A flow that the kernel carries counts in its service's limits until it ends.
func TestLimitsCountOffloaded(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o})
	addr, _ := backend(t, testnet.Echo)
	s := service("web", vip, addr)
	s.Limits.Connections = 1
	w.serve(s)
	c := dial(t, vip)
	p := receive(t, o.offers)
	handOff(t, p)
	wantReset(t, vip)
	p.Record().Finish(flow.ByClient, flow.ReasonClosed)
	c.Close()
	if err := testnet.Ask(dial(t, vip), "x"); err != nil {
		t.Error(err)
	}
}

// Stopping neither waits for flows that the kernel carries nor ends them.
func TestStopLeavesOffloaded(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, addr))
	dial(t, vip)
	p := receive(t, o.offers)
	path := handOff(t, p)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if left := w.relay.Drain(ctx); left != 0 || ctx.Err() != nil {
		t.Errorf("it waited: %d flows", left)
	}
	w.relay.ResetAll(flow.ReasonShutdown)
	if err := w.relay.Close(); err != nil {
		t.Error(err)
	}
	if len(path.ends) != 0 || p.Record().View().State != flow.Offloaded {
		t.Errorf("it was ended; %+v", p.Record().View())
	}
	p.Record().Finish(flow.ByClient, flow.ReasonClosed)
}

// A flow that the kernel carries gets what the policy says when its backend or its
// service goes, and `baton reset` ends it.
func TestOffloadedFollowsTheConfiguration(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy lb.RemovedPolicy
		do     func(w *world, s lb.Service, rec *flow.Record)
		want   flow.Reason
	}{
		{"removed: keep", lb.Keep, func(w *world, s lb.Service, _ *flow.Record) { w.serve(without(s)) }, ""},
		{"removed: reset", lb.Reset, func(w *world, s lb.Service, _ *flow.Record) { w.serve(without(s)) }, flow.ReasonBackendRemoved},
		{"removed: drain", lb.Drain, func(w *world, s lb.Service, _ *flow.Record) { w.serve(without(s)) }, flow.ReasonDrainTimeout},
		{"service removed: reset", lb.Reset, func(w *world, _ lb.Service, _ *flow.Record) { w.serve() }, flow.ReasonServiceRemoved},
		{"asked for", lb.Keep, func(_ *world, _ lb.Service, rec *flow.Record) { rec.End(flow.ByBaton, flow.ReasonAdminReset) }, flow.ReasonAdminReset},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newFakeOffloader()
			w := newWorld(t, Options{Offloader: o})
			addr, _ := backend(t, testnet.Echo)
			s := service("web", vip, addr, nobody(t))
			s.Backends[1].Priority = 1
			s.Backends[0].Priority, s.Backends[1].Priority = 0, 1
			s.OnBackendRemoved, s.DrainTimeout = tt.policy, 50*time.Millisecond
			w.serve(s)
			dial(t, vip)
			p := receive(t, o.offers)
			path := handOff(t, p)
			tt.do(w, s, p.Record())
			if tt.want == "" {
				w.barrier()
				if len(path.ends) != 0 {
					t.Errorf("it was ended: %+v", receive(t, path.ends))
				}
			} else if end := receive(t, path.ends); end != (endCall{flow.ByBaton, tt.want}) {
				t.Errorf("asked to end: %+v", end)
			}
			p.Record().Finish(flow.ByBaton, tt.want)
		})
	}
}

// without is a service without its first backend.
func without(s lb.Service) lb.Service {
	s.Backends = s.Backends[1:]
	return s
}

// adopted makes a record as an offloader does for a flow of an earlier process.
func (w *world) adopted(service string, backend netip.AddrPort) (*flow.Record, *fakePath) {
	l := w.registry.Acquire(service, backend)
	defer w.registry.Release(l)
	path := newFakePath()
	rec := w.registry.Open(flow.Spec{
		Proto: flow.TCP, Service: service, Frontend: vip, Client: believedClient, Backend: backend, Load: l,
		PathName: flow.PathBPF, Path: path, HandedOffAt: time.Now(),
	})
	w.relay.Adopt(rec, vip)
	return rec, path
}

// What went while no process was there to see it is seen once every source has
// delivered; a flow whose backend is there counts as any other.
func TestAdopt(t *testing.T) {
	for _, tt := range []struct {
		name    string
		policy  lb.RemovedPolicy
		service string
		listed  bool
		want    flow.Reason
	}{
		{"as it was", lb.Reset, "web", true, ""},
		{"backend gone, keep", lb.Keep, "web", false, ""},
		{"backend gone, reset", lb.Reset, "web", false, flow.ReasonBackendRemoved},
		{"backend gone, drain", lb.Drain, "web", false, flow.ReasonDrainTimeout},
		{"service gone", lb.Keep, "gone", true, flow.ReasonServiceRemoved},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Options{})
			addr, _ := backend(t, testnet.Echo)
			from := addr
			if !tt.listed {
				from = nobody(t)
			}
			rec, path := w.adopted(tt.service, from)
			s := service("web", vip, addr)
			s.OnBackendRemoved, s.DrainTimeout = tt.policy, 50*time.Millisecond
			s.Limits.PerClient, s.Limits.Connections = 1, 1
			w.serve(s) // its source has not said yet that this is all
			if len(path.ends) != 0 {
				t.Errorf("it was ended too early: %+v", receive(t, path.ends))
			}
			w.source.Synced()
			s.Timeouts.Idle++
			w.serve(s)
			if tt.want != "" {
				if end := receive(t, path.ends); end != (endCall{flow.ByBaton, tt.want}) {
					t.Errorf("asked to end: %+v", end)
				}
				rec.Finish(flow.ByBaton, tt.want)
				return
			}
			if n := w.registry.Acquire("web", from).Flows(); n != 1 || !w.relay.carried.has(vip.Addr()) {
				t.Errorf("its backend has %d flows; its address is held: %v", n, w.relay.carried.has(vip.Addr()))
			}
			wantReset(t, vip) // one is the limit
			rec.Finish(flow.ByClient, flow.ReasonClosed)
			if err := testnet.Ask(dial(t, vip), "x"); err != nil {
				t.Error(err)
			}
			if len(path.ends) != 0 || w.relay.carried.has(vip.Addr()) {
				t.Errorf("it was ended %d times, or its address is still held", len(path.ends))
			}
		})
	}
}

// The route of an address stays while the kernel carries connections to it.
func TestRouteOfOffloaded(t *testing.T) {
	needsNamespace(t)
	at := netip.MustParseAddrPort("10.96.0.10:80")
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o, Capture: capture.AnyIP})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", at, addr))
	c := dial(t, at)
	p := receive(t, o.offers)
	handOff(t, p)
	c.Close()
	reachable := func() bool {
		_, err := net.DialTimeout("tcp", at.String(), time.Second)
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	w.serve()
	w.relay.sweep()
	if !reachable() {
		t.Error("there is no route")
	}
	p.Record().Finish(flow.ByClient, flow.ReasonClosed)
	testnet.Eventually(t, patience, "the route is gone", func() error {
		if reachable() {
			return fmt.Errorf("it is not")
		}
		return nil
	})
}
