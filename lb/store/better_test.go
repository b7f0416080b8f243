package store

import (
	"testing"

	"github.com/baton-lb/baton/lb"
)

func TestBetter(t *testing.T) {
	ready := lb.Backend{Weight: 1}
	for _, tc := range []struct {
		name  string
		worse lb.Backend
	}{
		{"draining", lb.Backend{Weight: 1, State: lb.StateDrain}},
		{"down", lb.Backend{Weight: 9, State: lb.StateDown}},
		{"not serving", lb.Backend{Weight: 1, NotServing: true}},
		{"terminating", lb.Backend{Weight: 1, Terminating: true}},
		{"without weight", lb.Backend{}},
		{"of a later priority", lb.Backend{Weight: 9, Priority: 1}},
		{"far", lb.Backend{Weight: 1, Far: true}},
	} {
		if !better(&ready, &tc.worse) || better(&tc.worse, &ready) {
			t.Errorf("a ready one against one that is %s: %v, the other way %v", tc.name, better(&ready, &tc.worse), better(&tc.worse, &ready))
		}
	}
	if better(&ready, &ready) {
		t.Error("better than itself")
	}
	drain, down := lb.Backend{State: lb.StateDrain}, lb.Backend{State: lb.StateDown}
	if !better(&drain, &down) {
		t.Error("down is better than draining")
	}
}

// The same address listed twice, draining and ready: ready wins, whatever the
// order of the list and of the updates.
func TestSameAddressTwice(t *testing.T) {
	draining := func(svc lb.Service, i int) lb.Service {
		svc.Backends[i].State = lb.StateDrain
		return svc
	}
	twice := func() lb.Service {
		return service("web", "tcp://10.0.0.1:80", "10.1.0.1:80", "10.1.0.1:80", "10.1.0.2:80")
	}
	lists := map[string]lb.Service{
		"ready first":    draining(twice(), 1),
		"draining first": draining(twice(), 0),
	}
	for first := range lists {
		for second := range lists {
			s := New(Options{})
			must(t, s.Source("file").Upsert(lists[first]))
			must(t, s.Source("file").Upsert(lists[second]))
			svc, _ := s.Snapshot().Service("web")
			if len(svc.Pool) != 2 {
				t.Fatalf("%s, then %s: pool of %d", first, second, len(svc.Pool))
			}
			if b, ok := svc.Backend(svc.Backends[0].Address); !ok || b.State != lb.StateReady || !b.TakesNew() {
				t.Errorf("%s, then %s: %+v", first, second, b)
			}
		}
	}
}
