package store

import (
	"errors"
	"testing"

	"github.com/baton-lb/baton/lb"
)

// owner tells who has a frontend.
func owner(s *Store, frontend string) string {
	fe, ok := s.Snapshot().Frontend(frontendKey(frontend))
	if !ok {
		return ""
	}
	return fe.Service.Name
}

func TestReplaceIsAllOrNothing(t *testing.T) {
	s := New(Options{})
	file := s.Source("file")
	must(t, file.Replace([]lb.Service{service("web", "tcp://10.0.0.1:80", "10.1.0.1:80")}))
	before := s.Snapshot()

	bad := service("bad", "tcp://10.0.0.3:80", "10.1.0.1:80")
	bad.Balance = "magic"
	bad.Timeouts.Idle = 0
	for _, tc := range []struct {
		name  string
		list  []lb.Service
		words []string
	}{
		{"invalid", []lb.Service{service("new", "tcp://10.0.0.2:80"), bad}, []string{`service "bad": balance: "magic"`, `service "bad": timeouts.idle`}},
		{"twice", []lb.Service{service("a", "tcp://10.0.0.2:80"), service("a", "tcp://10.0.0.3:80")}, []string{`service "a": name`}},
		{"frontend taken in the list", []lb.Service{service("a", "tcp://10.0.0.2:80"), service("b", "tcp://10.0.0.9:80 tcp://10.0.0.2:80")},
			[]string{`service "b": frontends[1]: tcp://10.0.0.2:80 belongs to service "a"`}},
		{"nameless", []lb.Service{service("", "tcp://10.0.0.2:80")}, []string{"service without a name: name: is missing"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wantError(t, file.Replace(tc.list), tc.words...)
			if s.Snapshot() != before {
				t.Error("the snapshot changed")
			}
		})
	}
}

// A source that has to point at a line finds which service, and which field.
func TestFaultsAreStructured(t *testing.T) {
	s := New(Options{})
	bad := service("bad", "udp://10.0.0.1:53", "10.1.0.1:80")
	bad.Balance = "magic"
	err := s.Source("file").Replace([]lb.Service{service("good", "tcp://10.0.0.2:80"), bad})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("not joined: %v", err)
	}
	fields := map[string]bool{}
	for _, e := range joined.Unwrap() {
		var se *ServiceError
		var fe *lb.FieldError
		if !errors.As(e, &se) || se.Index != 1 || se.Service != "bad" {
			t.Errorf("%v is no ServiceError of number 1", e)
		}
		if !errors.As(e, &fe) {
			t.Fatalf("%v has no FieldError", e)
		}
		fields[fe.Field] = true
	}
	if !fields["balance"] {
		t.Errorf("fields %v, want balance among them", fields)
	}
}

func TestReplaceUpdatesAndDeletes(t *testing.T) {
	s := New(Options{})
	file, kube := s.Source("file"), s.Source("kube")
	must(t, kube.Upsert(service("other", "tcp://10.9.0.1:80")))
	must(t, file.Replace([]lb.Service{
		service("a", "tcp://10.0.0.1:80", "10.1.0.1:80"), service("b", "tcp://10.0.0.2:80", "10.1.0.1:80"),
	}))
	// Frontends change hands, one service goes, one comes: in one step.
	must(t, file.Replace([]lb.Service{
		service("b", "tcp://10.0.0.1:80", "10.1.0.1:80"), service("c", "tcp://10.0.0.2:80", "10.1.0.1:80"),
	}))
	for frontend, want := range map[string]string{
		"tcp://10.0.0.1:80": "b", "tcp://10.0.0.2:80": "c", "tcp://10.9.0.1:80": "other",
	} {
		if got := owner(s, frontend); got != want {
			t.Errorf("%s is of %q, want %q", frontend, got, want)
		}
	}
	if _, ok := s.Snapshot().Service("a"); ok {
		t.Error("a is still there")
	}
	must(t, file.Replace([]lb.Service{
		service("b", "tcp://10.0.0.2:80", "10.1.0.1:80"), service("c", "tcp://10.0.0.1:80", "10.1.0.1:80"),
	}))
	if owner(s, "tcp://10.0.0.1:80") != "c" || owner(s, "tcp://10.0.0.2:80") != "b" {
		t.Error("two services could not swap their frontends")
	}
}

func TestConflictsBetweenSources(t *testing.T) {
	s := New(Options{})
	file, kube := s.Source("file"), s.Source("kube")
	must(t, file.Upsert(service("web", "tcp://10.0.0.1:80")))
	wantError(t, kube.Upsert(service("web", "tcp://10.0.0.2:80")), `service "web"`, `source "file"`)
	wantError(t, kube.Upsert(service("api", "tcp://10.0.0.1:80")), `service "api": frontends[0]`, `belongs to service "web"`)
	must(t, kube.Upsert(service("api", "tcp://0.0.0.0:80"))) // a wildcard beside an address is fine
	kube.Delete("web")
	if owner(s, "tcp://10.0.0.1:80") != "web" {
		t.Error("one source deleted the service of another")
	}
	file.Delete("web")
	file.Delete("web")
	must(t, kube.Upsert(service("web", "tcp://10.0.0.1:80")))
	if got := s.Source("kube").Name(); got != "kube" {
		t.Errorf("name %q", got)
	}
}

func TestEqualIsNoChange(t *testing.T) {
	s := New(Options{})
	file := s.Source("file")
	must(t, file.Replace(many(10, 3)))
	before := s.Snapshot()
	must(t, file.Replace(many(10, 3)))
	must(t, file.Upsert(numbered(3, 3)))
	if s.Snapshot() != before {
		t.Error("the same services made a new snapshot")
	}
	list := many(10, 3)
	list[4].Backends[1].Weight = 7
	must(t, file.Replace(list))
	after := s.Snapshot()
	if after.Revision != before.Revision+1 {
		t.Errorf("revision %d after %d", after.Revision, before.Revision)
	}
	for svc := range after.Services() {
		old, _ := before.Service(svc.Name)
		if same := svc == old; same == (svc.Name == list[4].Name) {
			t.Errorf("%s: same %v", svc.Name, same)
		}
	}
}

// Of many changes at once those that are right are applied, in one revision.
func TestApplyRefusesOnlyWhatIsFaulty(t *testing.T) {
	s := New(Options{})
	src := s.Source("kube")
	must(t, src.Apply([]lb.Service{
		service("old", "tcp://10.0.0.1:80", "10.1.0.1:80"), service("stays", "tcp://10.0.0.2:80"), service("stuck", "tcp://10.0.0.3:80"),
	}, nil))
	before := s.Snapshot().Revision

	invalid := service("stuck", "tcp://10.0.0.9:80")
	invalid.Balance = "magic"
	err := src.Apply([]lb.Service{
		service("moved", "tcp://10.0.0.1:80", "10.1.0.2:80"), // from one that goes
		invalid,
		service("wants", "tcp://10.0.0.3:80"),  // what the refused one keeps
		service("wants2", "tcp://10.0.0.4:80"), // what a refused one does not get
		service("wants", "tcp://10.0.0.5:80"),  // listed twice
		service("stays", "tcp://10.0.0.2:80", "10.1.0.3:80"),
	}, []string{"old", "absent", "stays"})
	wantError(t, err, `service "stuck": balance`, `service "wants": frontends[0]: tcp://10.0.0.3:80 belongs to service "stuck"`, `service "wants": name`)
	for frontend, want := range map[string]string{
		"tcp://10.0.0.1:80": "moved", "tcp://10.0.0.2:80": "stays", "tcp://10.0.0.3:80": "stuck", "tcp://10.0.0.4:80": "wants2",
		"tcp://10.0.0.5:80": "", "tcp://10.0.0.9:80": "",
	} {
		if got := owner(s, frontend); got != want {
			t.Errorf("%s is of %q, want %q", frontend, got, want)
		}
	}
	if svc, ok := s.Snapshot().Service("stays"); !ok || len(svc.Pool) != 1 {
		t.Error("a service that is both new and gone was not updated")
	}
	if _, ok := s.Snapshot().Service("old"); ok {
		t.Error("the service that went is there")
	}
	if got := s.Snapshot().Revision; got != before+1 {
		t.Errorf("%d revisions, want one", got-before)
	}
}

// A service that is refused keeps what another was promised, down the chain.
func TestApplyRefusesWhatDependsOnTheRefused(t *testing.T) {
	s := New(Options{})
	src := s.Source("kube")
	must(t, src.Apply([]lb.Service{service("a", "tcp://10.0.0.1:80"), service("b", "tcp://10.0.0.2:80"), service("c", "tcp://10.0.0.3:80")}, nil))
	must(t, s.Source("other").Upsert(service("taken", "tcp://10.0.0.9:80")))
	err := src.Apply([]lb.Service{
		service("c", "tcp://10.0.0.2:80"), service("b", "tcp://10.0.0.1:80"), service("a", "tcp://10.0.0.9:80"), service("d", "tcp://10.0.0.4:80"),
	}, nil)
	wantError(t, err, `service "a"`, `service "b"`, `service "c"`)
	for frontend, want := range map[string]string{
		"tcp://10.0.0.1:80": "a", "tcp://10.0.0.2:80": "b", "tcp://10.0.0.3:80": "c", "tcp://10.0.0.4:80": "d", "tcp://10.0.0.9:80": "taken",
	} {
		if got := owner(s, frontend); got != want {
			t.Errorf("%s is of %q, want %q", frontend, got, want)
		}
	}
}
