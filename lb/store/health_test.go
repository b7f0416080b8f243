package store

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/baton-lb/baton/lb"
)

func TestSetHealth(t *testing.T) {
	s := New(Options{})
	file := s.Source("file")
	web := service("web", "tcp://10.0.0.1:80", "10.1.0.1:80", "10.1.0.2:80")
	must(t, file.Upsert(web))
	one := netip.MustParseAddrPort("10.1.0.1:80")
	s.SetHealth("web", one, Health{Unhealthy: true, Reason: "connection refused"})
	if b := backend(t, s, "web", "10.1.0.1:80"); !b.Unhealthy || b.HealthReason != "connection refused" {
		t.Errorf("%+v", b)
	}
	if b := backend(t, s, "web", "10.1.0.2:80"); b.Unhealthy {
		t.Error("its neighbour is unhealthy too")
	}
	before := s.Snapshot()
	s.SetHealth("web", one, Health{Unhealthy: true, Reason: "connection refused"})
	s.SetHealth("web", netip.MustParseAddrPort("10.1.0.9:80"), Health{Unhealthy: true})
	s.SetHealth("nobody", one, Health{Unhealthy: true})
	if s.Snapshot() != before {
		t.Error("no news made a new snapshot")
	}

	web.Balance = lb.Random
	must(t, file.Upsert(web))
	if b := backend(t, s, "web", "10.1.0.1:80"); !b.Unhealthy {
		t.Error("a reload made it healthy")
	}
	must(t, file.Upsert(service("web", "tcp://10.0.0.1:80", "10.1.0.2:80")))
	must(t, file.Upsert(web))
	if b := backend(t, s, "web", "10.1.0.1:80"); b.Unhealthy {
		t.Error("it left and came back, and its old health with it")
	}
	s.SetHealth("web", one, Health{Unhealthy: true})
	s.SetHealth("web", one, Health{})
	if b := backend(t, s, "web", "10.1.0.1:80"); b.Unhealthy {
		t.Error("still unhealthy")
	}
}

// A ramp is published step by step, and is kept over a reload.
func TestSetHealthRamp(t *testing.T) {
	s := New(Options{})
	file := s.Source("file")
	web := service("web", "tcp://10.0.0.1:80", "10.1.0.1:80", "10.1.0.2:80")
	must(t, file.Upsert(web))
	one := netip.MustParseAddrPort("10.1.0.1:80")
	for _, ramp := range []uint8{10, 20, 0, 30} {
		before := s.Snapshot().Revision
		h := Health{Ramp: ramp}
		s.SetHealth("web", one, h)
		s.SetHealth("web", one, h)
		if got := HealthOf(backend(t, s, "web", "10.1.0.1:80")); got != h {
			t.Errorf("published %+v, want %+v", got, h)
		}
		if n := s.Snapshot().Revision - before; n != 1 {
			t.Errorf("%d snapshots for one step", n)
		}
	}
	web.Balance = lb.LeastConnections
	must(t, file.Upsert(web))
	if got := HealthOf(backend(t, s, "web", "10.1.0.1:80")); got.Ramp != 30 {
		t.Errorf("after a reload: %+v", got)
	}
}

// Verdicts that come while the writer is busy are published together.
func TestHealthIsCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		must(t, s.Source("file").Replace(many(4, 50)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		before := s.Snapshot().Revision
		s.mu.Lock()
		for i := range 4 {
			for _, b := range numbered(i, 50).Backends {
				s.SetHealth(numbered(i, 0).Name, b.Address, Health{Unhealthy: true, Reason: fmt.Sprint(i)})
			}
		}
		s.mu.Unlock()
		synctest.Wait()
		if n := s.Snapshot().Revision - before; n != 1 {
			t.Errorf("200 verdicts made %d snapshots", n)
		}
		for svc := range s.Snapshot().Services() {
			if !svc.FrontendSet[0].Scheduler.AllUnhealthy() {
				t.Errorf("%s has not heard of it", svc.Name)
			}
		}
		cancel()
		must(t, <-done)
		s.SetHealth(numbered(0, 0).Name, numbered(0, 1).Backends[0].Address, Health{})
		if svc, _ := s.Snapshot().Service(numbered(0, 0).Name); svc.Pool[0].Unhealthy {
			t.Error("a verdict after Run waits for nobody")
		}
	})
}
