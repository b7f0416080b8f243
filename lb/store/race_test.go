package store

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
)

// Readers see a coherent snapshot, whatever the writers do: two services that
// change together are never seen apart, and what a frontend leads to is what the
// snapshot has under its name.
func TestReadersDuringUpdates(t *testing.T) {
	s := New(Options{})
	file, kube := s.Source("file"), s.Source("kube")
	pair := func(i int) []lb.Service {
		a, b := numbered(0, 12), numbered(1, 12)
		a.DrainTimeout, b.DrainTimeout = time.Duration(i), time.Duration(i)
		if i%2 == 1 { // they swap their frontends
			a.Frontends, b.Frontends = b.Frontends, a.Frontends
		}
		return []lb.Service{a, b}
	}
	must(t, file.Replace(pair(0)))
	done := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					checkPair(t, s.Snapshot())
				}
			}
		})
	}
	writers.Go(func() {
		for i := range 500 {
			must(t, file.Replace(pair(i)))
		}
	})
	writers.Go(func() {
		for i := range 500 {
			must(t, kube.Upsert(numbered(2+i%50, 1+i%3)))
			kube.Delete(numbered(2+(i+25)%50, 0).Name)
		}
	})
	writers.Go(func() {
		for i := range 500 {
			a := numbered(0, 12).Backends[i%12].Address
			s.SetHealth("default/service-0", a, Health{Unhealthy: i%3 == 0})
			if i%10 == 0 {
				_ = s.Drain(Target{Backend: a})
				_ = s.Undrain(Target{Backend: a})
			}
		}
	})
	writers.Wait()
	close(done)
	readers.Wait()
}

func checkPair(t *testing.T, snap *Snapshot) {
	a, okA := snap.Service("default/service-0")
	b, okB := snap.Service("default/service-1")
	if !okA || !okB || a.DrainTimeout != b.DrainTimeout {
		t.Errorf("revision %d: the pair is torn", snap.Revision)
	}
	for i := range 2 {
		k := numbered(i, 0).Frontends[0].FrontendKey
		fe, ok := snap.Frontend(k)
		if !ok {
			t.Errorf("revision %d: %s is lost", snap.Revision, k)
			continue
		}
		if svc, ok := snap.Service(fe.Service.Name); !ok || svc != fe.Service || fe.FrontendKey != k {
			t.Errorf("revision %d: %s leads to a service that is not the snapshot's", snap.Revision, k)
		}
		be, err := fe.Scheduler.Pick(sched.Request{Client: netip.MustParseAddrPort("192.0.2.1:1")})
		if err != nil {
			t.Errorf("revision %d: %v", snap.Revision, err)
		} else if mine, ok := fe.Service.Backend(be.Address); !ok || mine != be {
			t.Errorf("revision %d: picked a backend that the service does not have", snap.Revision)
		}
	}
}
