package store

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
)

func backend(t *testing.T, s *Store, service, address string) *sched.Backend {
	t.Helper()
	svc, ok := s.Snapshot().Service(service)
	if !ok {
		t.Fatalf("no service %q", service)
	}
	b, ok := svc.Backend(netip.MustParseAddrPort(address))
	if !ok {
		t.Fatalf("service %q has no backend %s", service, address)
	}
	return b
}

// open assigns a new flow to a backend.
func open(r *flow.Registry, b *sched.Backend) *flow.Record {
	rec := r.Open(flow.Spec{
		Proto: flow.TCP, Service: "web", Client: netip.MustParseAddrPort("192.0.2.1:1000"),
		Frontend: netip.MustParseAddrPort("10.0.0.1:80"),
	})
	rec.Assign(flow.Assignment{Backend: b.Address, Load: b.Load})
	return rec
}

func TestLoadsOutliveReloads(t *testing.T) {
	reg := flow.NewRegistry(flow.Options{})
	s := New(Options{Registry: reg})
	file := s.Source("file")
	must(t, file.Upsert(service("web", "tcp://10.0.0.1:80", "10.1.0.1:80", "10.1.0.2:80")))
	first := backend(t, s, "web", "10.1.0.1:80")
	rec := open(reg, first)

	must(t, file.Upsert(service("web", "tcp://10.0.0.1:80", "10.1.0.3:80", "10.1.0.1:80")))
	if b := backend(t, s, "web", "10.1.0.1:80"); b.Load != first.Load || b.Load.Flows() != 1 {
		t.Errorf("a reload lost the open flow: %d", b.Load.Flows())
	}
	must(t, file.Upsert(service("web", "tcp://10.0.0.1:80")))
	must(t, file.Upsert(service("web", "tcp://10.0.0.1:80", "10.1.0.1:80")))
	if b := backend(t, s, "web", "10.1.0.1:80"); b.Load != first.Load {
		t.Error("a backend that went and came back lost its open flow")
	}
	rec.Finish(flow.ByClient, flow.ReasonClosed)
	file.Delete("web")
	must(t, file.Upsert(service("web", "tcp://10.0.0.1:80", "10.1.0.1:80")))
	if b := backend(t, s, "web", "10.1.0.1:80"); b.Load == first.Load {
		t.Error("a Load that nobody used was never given back")
	}
}

// An update that is refused takes and gives back nothing.
func TestRefusedUpdateLeavesLoads(t *testing.T) {
	reg := flow.NewRegistry(flow.Options{})
	s := New(Options{Registry: reg})
	file := s.Source("file")
	must(t, file.Upsert(service("web", "tcp://10.0.0.1:80", "10.1.0.1:80")))
	before := backend(t, s, "web", "10.1.0.1:80").Load
	bad := service("web", "tcp://10.0.0.1:80", "10.1.0.2:80")
	bad.Balance = ""
	wantError(t, file.Upsert(bad), "balance")
	must(t, file.Upsert(service("web", "tcp://10.0.0.1:80", "10.1.0.2:80", "10.1.0.1:80")))
	if got := backend(t, s, "web", "10.1.0.1:80").Load; got != before {
		t.Error("the Load was given back by an update that did not happen")
	}
}

func TestFrontendsShareSchedulers(t *testing.T) {
	s := New(Options{})
	svc := service("web", "tcp://10.0.0.1:80 tcp://10.0.0.2:80 tcp://10.0.0.3:80 tcp://10.0.0.4:80", "10.1.0.1:80", "10.1.0.2:80")
	svc.Backends[1].Local = true
	svc.Frontends[1].Subset, svc.Frontends[3].Subset = lb.LocalBackends, lb.LocalBackends
	must(t, s.Source("file").Upsert(svc))
	got, _ := s.Snapshot().Service("web")
	set := got.FrontendSet
	if set[0].Scheduler != set[2].Scheduler || set[1].Scheduler != set[3].Scheduler || set[0].Scheduler == set[1].Scheduler {
		t.Error("frontends with the same subset, and only they, must share a scheduler")
	}
	if all, local := set[0].Scheduler.Usable(), set[1].Scheduler.Usable(); all != 2 || local != 1 {
		t.Errorf("usable %d and %d, want 2 and 1", all, local)
	}
	for i, fe := range set {
		if fe.Service != got || fe.Frontend != &got.Frontends[i] {
			t.Errorf("frontend %d belongs elsewhere", i)
		}
	}
}

// Clients inside have a scheduler of their own, shared with whom else it suits.
func TestClientsInside(t *testing.T) {
	s := New(Options{})
	svc := service("web", "tcp://10.0.0.1:80 tcp://10.0.0.2:80 tcp://10.0.0.3:80", "10.1.0.1:80", "10.1.0.2:80")
	svc.Frontends[0].Subset, svc.Frontends[0].Inside = lb.LocalBackends, []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	svc.Frontends[2].Subset = lb.LocalBackends
	check := func(when string, outside, inside int, usable bool) *Service {
		t.Helper()
		must(t, s.Source("file").Upsert(svc))
		got, _ := s.Snapshot().Service("web")
		local, all, none := got.FrontendSet[0], got.FrontendSet[1], got.FrontendSet[2]
		if local.For(true) != all.Scheduler || local.For(false) != none.Scheduler || all.For(true) != all.Scheduler || none.For(true) != none.Scheduler {
			t.Errorf("%s: each selection, and only it, must have a scheduler", when)
		}
		if o, i := local.For(false).Usable(), local.For(true).Usable(); o != outside || i != inside || local.Usable() != usable {
			t.Errorf("%s: usable outside %d, inside %d, %t; want %d, %d, %t", when, o, i, local.Usable(), outside, inside, usable)
		}
		for i, b := range got.Pool {
			if local.May(b, false) != svc.Backends[i].Local || !local.May(b, true) {
				t.Errorf("%s: %s outside %t, inside %t", when, b.Address, local.May(b, false), local.May(b, true))
			}
		}
		return got
	}
	check("none is local", 0, 2, true)
	svc.Backends = slices.Clone(svc.Backends)
	svc.Backends[1].Local = true
	before := check("one is", 1, 2, true)
	picks := make(map[netip.AddrPort]int)
	pick := func(svc *Service) {
		b, err := svc.FrontendSet[0].For(true).Pick(sched.Request{})
		must(t, err)
		picks[b.Address]++
	}
	pick(before)
	svc.DrainTimeout++
	pick(check("again", 1, 2, true)) // the rotation goes on
	if len(picks) != 2 {
		t.Errorf("picked %v", picks)
	}
	svc.Backends = slices.Clone(svc.Backends)
	svc.Backends[0].State, svc.Backends[1].State = lb.StateDown, lb.StateDown
	check("all are down", 0, 0, false)
}

// Round-robin goes on where it was when one of the backends changes.
func TestRotationSurvivesUpdates(t *testing.T) {
	s := New(Options{})
	svc := service("web", "tcp://10.0.0.1:80", "10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80")
	seen := map[netip.AddrPort]int{}
	for i := range 30 {
		svc.DrainTimeout++
		if i%3 == 1 {
			svc.Backends = append([]lb.Backend(nil), svc.Backends...)
		}
		must(t, s.Source("file").Upsert(svc))
		fe, _ := s.Snapshot().Frontend(svc.Frontends[0].FrontendKey)
		b, err := fe.Scheduler.Pick(sched.Request{})
		must(t, err)
		seen[b.Address]++
	}
	for a, n := range seen {
		if n != 10 {
			t.Errorf("%s: %d of 30", a, n)
		}
	}
}

func TestBackendIndex(t *testing.T) {
	for _, n := range []int{0, 1, smallPool, smallPool + 1, 200} {
		svc := numbered(1, n)
		s := New(Options{})
		must(t, s.Source("file").Upsert(svc))
		got, _ := s.Snapshot().Service(svc.Name)
		for i := range svc.Backends {
			if b, ok := got.Backend(svc.Backends[i].Address); !ok || b != got.Pool[i] {
				t.Fatalf("%d backends: number %d is not found", n, i)
			}
		}
		if _, ok := got.Backend(netip.MustParseAddrPort("192.0.2.1:1")); ok {
			t.Errorf("%d backends: found a stranger", n)
		}
	}
	if _, ok := (*Service)(nil).Backend(netip.AddrPort{}); ok {
		t.Error("no service has a backend")
	}
}
