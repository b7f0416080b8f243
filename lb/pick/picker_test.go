package pick

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
)

func noAffinity(s *lb.Service) { s.Affinity = lb.Affinity{} }

func TestWithoutAffinity(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{})
	r.publish(f.service(noAffinity, "1", "2"))
	for _, n := range []string{"1", "2", "1", "2"} {
		r.open(f.frontend, f.client).check(t, f.backend(n), flow.ByAlgorithm)
	}
	if n := r.picker.Entries("web"); n != 0 {
		t.Errorf("%d entries", n)
	}
}

// Pick alone remembers and counts nothing.
func TestPickHasNoEffect(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{})
	r.publish(f.service(nil, "1", "2"))
	fe := r.frontend(f.frontend)
	for range 10 {
		c, err := r.picker.Pick(Request{Frontend: fe, Client: netip.MustParseAddrPort(f.client), Now: r.now})
		if err != nil || c.Picked != flow.ByAlgorithm || c.Backend.Load.Flows() != 0 {
			t.Fatalf("picked %v, %v", c, err)
		}
	}
	if n := r.picker.Entries("web"); n != 0 {
		t.Errorf("%d entries", n)
	}
}

// A repeated SYN or INIT commits again: nothing is counted twice.
func TestCommitTwice(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{})
	r.publish(f.service(func(s *lb.Service) { s.Backends[0].MaxConnections = 1 }, "1"))
	o := r.open(f.frontend, f.client)
	for range 3 {
		if !r.picker.Commit(o.rec, r.frontend(f.frontend), o.choice, r.now) {
			t.Fatal("refused")
		}
	}
	if n, e := o.choice.Backend.Load.Flows(), r.picker.Entries("web"); n != 1 || e != 1 {
		t.Errorf("%d flows, %d entries; want 1, 1", n, e)
	}
}

// A choice that came too late changes nothing.
func TestCommitRefused(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{})
	r.publish(f.service(func(s *lb.Service) { s.Backends[0].MaxConnections = 1 }, "1"))
	fe, client := r.frontend(f.frontend), netip.MustParseAddrPort(f.client)
	late, err := r.picker.Pick(Request{Frontend: fe, Client: client, Now: r.now})
	if err != nil {
		t.Fatal(err)
	}
	r.open(f.frontend, "192.0.2.99:1")
	rec := r.registry.Open(flow.Spec{Proto: flow.TCP, Service: "web", Client: client, Frontend: fe.Address})
	if r.picker.Commit(rec, fe, late, r.now) {
		t.Error("went over the limit")
	}
	if rec.Backend().IsValid() || late.Backend.Load.Flows() != 1 || r.picker.Entries("web") != 1 {
		t.Errorf("backend %s, %d flows, %d entries", rec.Backend(), late.Backend.Load.Flows(), r.picker.Entries("web"))
	}
	if _, err := r.tryOpen(f.frontend, f.client); !errors.Is(err, sched.ErrBackendsFull) {
		t.Errorf("the next pick: %v, want ErrBackendsFull", err)
	}
	rec.Finish(flow.ByBaton, flow.ReasonLimit)
	if r.picker.Commit(rec, fe, late, r.now) {
		t.Error("a flow that has ended was given a backend")
	}
}

func TestEviction(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{MaxClients: 2})
	r.publish(f.service(nil, "1"))
	for i := range 5 {
		r.open(f.frontend, fmt.Sprintf("192.0.2.%d:1", i+1))
		r.now = r.now.Add(second)
	}
	if n, e := r.picker.Entries("web"), r.picker.Evicted("web"); n != 2 || e != 3 {
		t.Errorf("%d entries, %d evicted; want 2, 3", n, e)
	}
	r.open(f.frontend, "192.0.2.5:2").check(t, f.backend("1"), flow.ByAffinity)
	r.open(f.frontend, "192.0.2.1:2").check(t, f.backend("1"), flow.ByAlgorithm)
}

// Flows begin while the service is reloaded and clients are forgotten.
func TestConcurrentUse(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{MaxClients: 50})
	backends := []string{"1", "2", "3"}
	r.publish(f.service(nil, backends...))
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			for i := range 300 {
				o, err := r.tryOpen(f.frontend, fmt.Sprintf("10.9.%d.%d:1", g, i%100))
				if err != nil {
					t.Error(err)
					return
				}
				o.rec.Finish(flow.ByClient, flow.ReasonClosed)
			}
		})
	}
	for i := range 50 {
		r.publish(f.service(func(s *lb.Service) { s.Backends[i%3].State = lb.StateDrain }, backends...))
		r.picker.Expire(r.now)
	}
	wg.Wait()
	for _, b := range r.frontend(f.frontend).Service.Pool {
		if n := b.Load.Flows(); n != 0 {
			t.Errorf("%s is left with %d flows", b.Address, n)
		}
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{})
	r.publish(f.service(nil, "1", "2", "3"))
	o := r.open(f.frontend, f.client)
	fe := r.frontend(f.frontend)
	known, unknown := o.rec.Key().Client(), netip.MustParseAddrPort("192.0.2.200:1")
	tried := []*sched.Backend{o.choice.Backend}
	if n := testing.AllocsPerRun(100, func() {
		for _, req := range []Request{
			{Frontend: fe, Client: known, Now: r.now},
			{Frontend: fe, Client: known, Now: r.now, Tried: tried},
			{Frontend: fe, Client: unknown, Now: r.now},
		} {
			if _, err := r.picker.Pick(req); err != nil {
				t.Fatal(err)
			}
		}
		r.picker.Commit(o.rec, fe, o.choice, r.now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPick(b *testing.B) {
	for _, c := range []struct {
		name   string
		change func(*lb.Service)
		known  bool
	}{{"no affinity", noAffinity, false}, {"new client", nil, false}, {"known client", nil, true}} {
		b.Run(c.name, func(b *testing.B) {
			f := families[0]
			r := newRig(b, Options{})
			r.publish(f.service(c.change, "1", "2", "3"))
			req := Request{Frontend: r.frontend(f.frontend), Client: netip.MustParseAddrPort(f.client), Now: r.now}
			if c.known {
				r.open(f.frontend, f.client)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.picker.Pick(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
