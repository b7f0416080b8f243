package store

import (
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

func TestSnapshotFrontend(t *testing.T) {
	s := New(Options{})
	must(t, s.Source("file").Replace([]lb.Service{
		service("exact", "tcp://10.0.0.1:80"),
		service("any4", "tcp://0.0.0.0:80"),
		service("any6", "tcp://[::]:80"),
		service("exact6", "tcp://[fd00::1]:80 tcp://[fd00::1]:443"),
	}))
	for _, tc := range []struct{ key, service string }{
		{"tcp://10.0.0.1:80", "exact"},
		{"tcp://10.0.0.2:80", "any4"},
		{"tcp://10.0.0.1:81", ""},
		{"udp://10.0.0.1:80", ""},
		{"tcp://[fd00::1]:80", "exact6"},
		{"tcp://[fd00::1]:443", "exact6"},
		{"tcp://[fd00::2]:80", "any6"},
		{"tcp://[fd00::2]:443", ""},
		{"tcp://0.0.0.0:80", "any4"},
	} {
		fe, ok := s.Snapshot().Frontend(frontendKey(tc.key))
		if ok != (tc.service != "") {
			t.Errorf("%s: found %v", tc.key, ok)
		} else if ok && fe.Service.Name != tc.service {
			t.Errorf("%s: %s, want %s", tc.key, fe.Service.Name, tc.service)
		}
	}
	s.Source("file").Delete("any4")
	if fe, ok := s.Snapshot().Frontend(frontendKey("tcp://10.0.0.2:80")); ok {
		t.Errorf("the wildcard is gone, found %s", fe.Service.Name)
	}
}

// A multihomed frontend is found by every address and listed once.
func TestMultihomedFrontend(t *testing.T) {
	var empty Snapshot
	svc := service("m3ua", "sctp://10.0.0.1|10.1.0.1:2905")
	n := &Service{Service: svc}
	n.FrontendSet = []*Frontend{{Frontend: &n.Frontends[0], Service: n, asked: n.Frontends[0].FrontendKey}}
	services, frontends := empty.services.edit(), empty.frontends.edit()
	enter(services, frontends, n)
	snap := &Snapshot{services: services.table, frontends: frontends.table}
	for _, a := range []string{"sctp://10.0.0.1:2905", "sctp://10.1.0.1:2905"} {
		if fe, ok := snap.Frontend(frontendKey(a)); !ok || fe.Service != n {
			t.Errorf("%s is not found", a)
		}
	}
	for _, a := range []string{"sctp://10.2.0.1:2905", "sctp://10.1.0.1:2906", "tcp://10.1.0.1:2905"} {
		if _, ok := snap.Frontend(frontendKey(a)); ok {
			t.Errorf("%s is found", a)
		}
	}
	count := 0
	for range snap.Frontends() {
		count++
	}
	if count != 1 {
		t.Errorf("listed %d times", count)
	}
	leave(frontends, n)
	snap = &Snapshot{frontends: frontends.table}
	if _, ok := snap.Frontend(frontendKey("sctp://10.1.0.1:2905")); ok {
		t.Error("still found when it has left")
	}
}

func TestSnapshotLists(t *testing.T) {
	s := New(Options{})
	if snap := s.Snapshot(); snap == nil || snap.Revision != 0 || snap.Len() != 0 {
		t.Fatalf("an empty store has %+v", snap)
	}
	must(t, s.Source("file").Replace([]lb.Service{
		service("b", "tcp://10.0.0.2:80 tcp://10.0.0.2:81", "10.1.0.1:80"),
		service("a", "tcp://0.0.0.0:82", "10.1.0.1:80", "10.1.0.1:80", "10.1.0.2:80"),
	}))
	snap := s.Snapshot()
	if got, want := snap.Counts(), (Counts{Services: 2, Frontends: 3, Backends: 3, wildcards: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	if sorted := snap.Sorted(); len(sorted) != 2 || sorted[0].Name != "a" || sorted[1].Name != "b" {
		t.Errorf("sorted: %v", sorted)
	}
	for fe := range snap.Frontends() {
		if got, ok := snap.Frontend(fe.FrontendKey); !ok || got != fe {
			t.Errorf("%s is listed and not found", fe)
		}
		break
	}
	must(t, s.Source("file").Replace(nil))
	if got := s.Snapshot().Counts(); got != (Counts{}) {
		t.Errorf("counts when all is gone: %+v", got)
	}
}

func TestLookupsDoNotAllocate(t *testing.T) {
	s := New(Options{})
	must(t, s.Source("file").Replace(append(many(100, 25), service("any", "tcp://0.0.0.0:443"))))
	svc, _ := s.Snapshot().Service("default/service-7")
	exact, wild := svc.Frontends[0].FrontendKey, svc.Frontends[0].FrontendKey
	wild.Address = frontendKey("tcp://10.96.0.1:443").Address
	backend := svc.Backends[20].Address
	if n := testing.AllocsPerRun(100, func() {
		snap := s.Snapshot()
		_, a := snap.Frontend(exact)
		_, b := snap.Frontend(wild)
		_, c := snap.Service("default/service-7")
		_, d := svc.Backend(backend)
		if !a || !b || !c || !d {
			t.Error("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestZeroKeyIsNobody(t *testing.T) {
	s := New(Options{})
	must(t, s.Source("file").Upsert(service("any", "tcp://0.0.0.0:80")))
	if _, ok := s.Snapshot().Frontend(lb.FrontendKey{Proto: flow.TCP}); ok {
		t.Error("the zero address found a frontend")
	}
}
