package pick

import (
	"testing"
	"time"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// program runs what the store would run after a change from one snapshot.
func (r *rig) program(from *store.Snapshot, services ...string) {
	r.t.Helper()
	change := store.Change{From: from, To: r.store.Snapshot(), Services: services, Synced: true}
	for range 2 { // it is idempotent
		if failures := r.picker.Program(r.t.Context(), change); len(failures) > 0 {
			r.t.Error(failures)
		}
	}
}

func TestProgram(t *testing.T) {
	f := families[0]
	other := func() lb.Service {
		svc := f.service(nil, "9")
		svc.Name = "other"
		svc.Frontends[0], _ = lb.ParseFrontend("tcp://10.96.0.99:80")
		return svc
	}
	for _, c := range []struct {
		name     string
		services []lb.Service
		want     int
	}{
		{"the same", []lb.Service{f.service(nil, "1")}, 1},
		{"other backends", []lb.Service{f.service(nil, "7")}, 1},
		{"no backends", []lb.Service{f.service(nil)}, 1},
		{"no affinity", []lb.Service{f.service(noAffinity, "1")}, 0},
		{"gone", []lb.Service{other()}, 0},
		{"all gone", nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Options{})
			r.publish(f.service(nil, "1"))
			r.open(f.frontend, f.client)
			from := r.store.Snapshot()
			r.publish(c.services...)
			r.program(from, "web", "other")
			if got := r.picker.Entries("web"); got != c.want {
				t.Errorf("%d entries, want %d", got, c.want)
			}
		})
	}
}

// A flow that began just before its service went makes a table afterwards. That
// goes when its client has expired.
func TestTableOfAGoneService(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{})
	r.publish(f.service(nil, "1"))
	fe, o := r.frontend(f.frontend), r.open(f.frontend, f.client)
	from := r.store.Snapshot()
	r.publish()
	r.program(from, "web")
	r.picker.Commit(o.rec, fe, o.choice, r.now)
	if n := r.picker.Expire(r.now.Add(time.Minute - 1)); n != 0 || r.picker.Entries("web") != 1 {
		t.Errorf("%d expired early", n)
	}
	if n := r.picker.Expire(r.now.Add(time.Minute)); n != 1 || len(r.picker.tables.names()) != 0 {
		t.Errorf("%d expired, tables left: %v", n, r.picker.tables.names())
	}
}

func TestExpire(t *testing.T) {
	f := families[0]
	r := newRig(t, Options{})
	r.publish(f.service(func(s *lb.Service) { s.Affinity.Timeout = 0 }, "1", "2")) // the default, three hours
	r.open(f.frontend, "192.0.2.1:1")
	r.now = r.now.Add(2 * time.Hour)
	r.open(f.frontend, "192.0.2.2:1")
	for _, c := range []struct {
		after         time.Duration
		removed, left int
	}{{0, 0, 2}, {time.Hour, 1, 1}, {2 * time.Hour, 0, 1}, {3 * time.Hour, 1, 0}, {4 * time.Hour, 0, 0}} {
		if n := r.picker.Expire(r.now.Add(c.after)); n != c.removed || r.picker.Entries("web") != c.left {
			t.Errorf("after %s: %d removed, %d left; want %d, %d", c.after, n, r.picker.Entries("web"), c.removed, c.left)
		}
	}
}

func TestNothingIsKnownOfUnknownServices(t *testing.T) {
	p := New(Options{})
	if p.Entries("web") != 0 || p.Evicted("web") != 0 || p.Expire(time.Now()) != 0 {
		t.Error("an empty picker knows a service")
	}
}
