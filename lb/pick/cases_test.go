package pick

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/store"
)

// The situations of affinity, and of backends that come and go, as far as
// choosing goes.

// A1: the client's backend turns unready while the client keeps coming.
func TestOwnBackendTurnsUnready(t *testing.T) {
	for _, unready := range []struct {
		name   string
		change func(*lb.Backend)
	}{
		{"drain", func(b *lb.Backend) { b.State = lb.StateDrain }},
		{"down", func(b *lb.Backend) { b.State = lb.StateDown }},
		{"weight 0", func(b *lb.Backend) { b.Weight = 0 }},
		{"not serving", func(b *lb.Backend) { b.NotServing = true }},
		{"terminating", func(b *lb.Backend) { b.Terminating = true }},
	} {
		t.Run(unready.name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, f family) {
				r := newRig(t, Options{})
				r.publish(f.service(nil, "1", "2"))
				one, two := f.backend("1"), f.backend("2")
				r.open(f.frontend, f.client).check(t, one, flow.ByAlgorithm)
				r.open(f.frontend, f.client).check(t, one, flow.ByAffinity)
				r.publish(f.service(func(s *lb.Service) { unready.change(&s.Backends[0]) }, "1", "2"))
				r.open(f.frontend, f.client).check(t, two, flow.ByAlgorithm)
				r.publish(f.service(nil, "1", "2"))
				r.open(f.frontend, f.client).check(t, two, flow.ByAffinity)
			})
		})
	}
}

// A1, when a probe or the command line says so instead of the source.
func TestOwnBackendIsTakenOut(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		r := newRig(t, Options{})
		r.publish(f.service(nil, "1", "2"))
		first := r.open(f.frontend, f.client)
		target, err := store.ParseTarget(first.backend())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.store.Drain(target); err != nil {
			t.Fatal(err)
		}
		r.open(f.frontend, f.client).check(t, f.backend("2"), flow.ByAlgorithm)
		if first.rec.View().State != flow.Dialing {
			t.Error("draining ended the old flow")
		}
	})
}

// A2: the client's backend refuses connections but is still listed.
func TestOwnBackendRefuses(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		r := newRig(t, Options{})
		r.publish(f.service(nil, "1", "2"))
		one, two := f.backend("1"), f.backend("2")
		pinned := r.open(f.frontend, f.client)
		pinned.check(t, one, flow.ByAlgorithm)
		r.open(f.frontend, f.client, one).check(t, two, flow.ByRetry)
		if n := pinned.choice.Backend.Load.Failures(); n != 1 {
			t.Errorf("%d failures counted, want 1", n)
		}
		r.open(f.frontend, f.client, one).check(t, two, flow.ByAffinity)
		if n := pinned.choice.Backend.Load.Flows(); n != 1 {
			t.Errorf("the refusing backend has %d flows, want the first one only", n)
		}
		if _, err := r.tryOpen(f.frontend, f.client, one, two); !errors.Is(err, sched.ErrAllTried) {
			t.Errorf("all refuse: %v, want ErrAllTried", err)
		}
	})
}

// A3: the client's backend is draining: new flows go elsewhere, old ones stay.
func TestOwnBackendDrains(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		r := newRig(t, Options{})
		r.publish(f.service(nil, "1", "2"))
		old := r.open(f.frontend, f.client)
		r.publish(f.service(func(s *lb.Service) { s.Backends[0].State = lb.StateDrain }, "1", "2"))
		r.open(f.frontend, f.client).check(t, f.backend("2"), flow.ByAlgorithm)
		old.check(t, f.backend("1"), flow.ByAlgorithm)
		if n := old.choice.Backend.Load.Flows(); n != 1 {
			t.Errorf("the draining backend has %d flows, want its old one", n)
		}
	})
}

// B3: the same address listed twice, draining and ready: ready wins.
func TestListedTwice(t *testing.T) {
	drains := func(i int) func(*lb.Service) {
		return func(s *lb.Service) { s.Backends[i].State = lb.StateDrain }
	}
	terminates := func(i int) func(*lb.Service) {
		return func(s *lb.Service) { s.Backends[i].Terminating = true }
	}
	eachFamily(t, func(t *testing.T, f family) {
		one := f.backend("1")
		for _, order := range [][]lb.Service{
			{f.service(drains(0), "1", "1")},
			{f.service(drains(1), "1", "1")},
			{f.service(terminates(0), "1", "1")},
			{f.service(terminates(1), "1", "1")},
			{f.service(drains(0), "1"), f.service(drains(0), "1", "1")},
			{f.service(nil, "1"), f.service(drains(0), "1", "1"), f.service(drains(1), "1", "1")},
		} {
			r := newRig(t, Options{})
			for _, svc := range order {
				r.publish(svc)
			}
			r.open(f.frontend, f.client).check(t, one, flow.ByAlgorithm)
			r.open(f.frontend, f.client).check(t, one, flow.ByAffinity)
			if n := r.frontend(f.frontend).Scheduler.Usable(); n != 1 {
				t.Errorf("%d usable, want 1", n)
			}
		}
	})
}

// The backends go and come back: the client finds its own again.
func TestBackendsGoToZeroAndBack(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		r := newRig(t, Options{})
		all := []string{"1", "2", "3", "4", "5"}
		r.publish(f.service(nil, all...))
		r.open(f.frontend, "198.51.100.1:9") // so that the client's is not the first
		own := r.open(f.frontend, f.client).backend()
		r.publish(f.service(nil))
		if _, err := r.tryOpen(f.frontend, f.client); !errors.Is(err, sched.ErrNoBackend) {
			t.Errorf("no backends: %v", err)
		}
		r.now = r.now.Add(30 * second)
		r.publish(f.service(nil, all...))
		r.open(f.frontend, f.client).check(t, own, flow.ByAffinity)
	})
}

func TestTimeoutCountsFromTheLastNewFlow(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{})
	r.publish(f.service(nil, "1", "2"))
	r.open(f.frontend, f.client)
	for range 5 {
		r.now = r.now.Add(time.Minute - 1)
		r.open(f.frontend, f.client).check(t, f.backend("1"), flow.ByAffinity)
	}
	r.now = r.now.Add(time.Minute)
	r.open(f.frontend, f.client).check(t, f.backend("2"), flow.ByAlgorithm)
}

func TestAffinityIsByAddressNotPort(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{})
	r.publish(f.service(nil, "1", "2", "3"))
	r.open(f.frontend, "192.0.2.7:1000").check(t, f.backend("1"), flow.ByAlgorithm)
	r.open(f.frontend, "192.0.2.7:2000").check(t, f.backend("1"), flow.ByAffinity)
	r.open(f.frontend, "[::ffff:192.0.2.7]:3000").check(t, f.backend("1"), flow.ByAffinity)
	r.open(f.frontend, "192.0.2.8:1000").check(t, f.backend("2"), flow.ByAlgorithm)
}

// A full backend cannot keep its client; the client stays where it went.
func TestOwnBackendIsFull(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{})
	r.publish(f.service(func(s *lb.Service) { s.Backends[0].MaxConnections = 1 }, "1", "2"))
	first := r.open(f.frontend, f.client)
	first.check(t, f.backend("1"), flow.ByAlgorithm)
	r.open(f.frontend, f.client).check(t, f.backend("2"), flow.ByAlgorithm)
	first.rec.Finish(flow.ByClient, flow.ReasonClosed)
	r.open(f.frontend, f.client).check(t, f.backend("2"), flow.ByAffinity)
}

// With nothing better than unhealthy or terminating backends, clients keep
// those they have.
func TestAffinityWithNothingBetter(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{})
	r.publish(f.service(func(s *lb.Service) {
		for i := range s.Backends {
			s.Backends[i].Terminating = true
		}
	}, "1", "2", "3"))
	r.open(f.frontend, f.client).check(t, f.backend("1"), flow.ByAlgorithm)
	r.open(f.frontend, f.client).check(t, f.backend("1"), flow.ByAffinity)
}

// A frontend that may use some of the backends never uses another's choice.
func TestAffinityAcrossSubsets(t *testing.T) {
	f := families[0]
	const local = "tcp://10.96.0.10:8080"
	r := newRig(t, Options{})
	r.publish(f.service(func(s *lb.Service) {
		fe, _ := lb.ParseFrontend(local)
		fe.Subset = lb.LocalBackends
		s.Frontends = append(s.Frontends, fe)
		s.Backends[1].Local = true
	}, "1", "2"))
	r.open(f.frontend, f.client).check(t, f.backend("1"), flow.ByAlgorithm)
	r.open(local, f.client).check(t, f.backend("2"), flow.ByAlgorithm)
	r.open(f.frontend, f.client).check(t, f.backend("2"), flow.ByAffinity)
}

// A client inside is given what it may use, and so is one outside, also when the
// affinity remembers more.
func TestClientsInside(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{})
	publish := func(local string) {
		r.publish(f.service(func(s *lb.Service) {
			s.Frontends[0].Subset = lb.LocalBackends
			s.Frontends[0].Inside = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
			for i := range s.Backends {
				s.Backends[i].Local = s.Backends[i].Address.String() == f.backend(local)
			}
		}, "1", "2"))
	}
	pick := func(inside bool, client string) (Choice, error) {
		return r.picker.Pick(Request{Frontend: r.frontend(f.frontend), Client: netip.MustParseAddrPort(client), Inside: inside, Now: r.now})
	}
	publish("none")
	if c, err := pick(false, f.client); !errors.Is(err, sched.ErrNoBackend) {
		t.Errorf("outside, none is local: %v, %v", c, err)
	}
	if c, err := pick(true, "10.244.1.7:40000"); err != nil {
		t.Errorf("inside, none is local: %v, %v", c, err)
	}
	publish("2")
	r.open(f.frontend, f.client).check(t, f.backend("2"), flow.ByAlgorithm)
	publish("1")
	if c, err := pick(true, f.client); err != nil || c.Backend.Address.String() != f.backend("2") || c.Picked != flow.ByAffinity {
		t.Errorf("inside, with a remembered one elsewhere: %v, %v", c, err)
	}
	if c, err := pick(false, f.client); err != nil || c.Backend.Address.String() != f.backend("1") || c.Picked != flow.ByAlgorithm {
		t.Errorf("outside, with a remembered one elsewhere: %v, %v", c, err)
	}
}

// A1, when a probe says so; and when all are unhealthy, they are all used.
func TestOwnBackendTurnsUnhealthy(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.store.Run(ctx) }()
	defer func() { stop(); <-done }()
	r.publish(f.service(nil, "1", "2"))
	r.open(f.frontend, f.client).check(t, f.backend("1"), flow.ByAlgorithm)
	r.turnUnhealthy(f, "1")
	r.open(f.frontend, f.client).check(t, f.backend("2"), flow.ByAlgorithm)
	r.turnUnhealthy(f, "2")
	r.open(f.frontend, f.client).check(t, f.backend("2"), flow.ByAffinity)
}

// turnUnhealthy waits until the snapshot has it.
func (r *rig) turnUnhealthy(f family, n string) {
	r.t.Helper()
	addr := netip.MustParseAddrPort(f.backend(n))
	r.store.SetHealth("web", addr, store.Health{Unhealthy: true, Reason: "refused"})
	for deadline := time.Now().Add(10 * second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if b, ok := r.frontend(f.frontend).Service.Backend(addr); ok && b.Unhealthy {
			return
		}
	}
	r.t.Fatalf("%s did not turn unhealthy", addr)
}
