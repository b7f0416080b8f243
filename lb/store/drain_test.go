package store

import (
	"errors"
	"testing"

	"github.com/baton-lb/baton/lb"
)

func target(t testing.TB, s string) Target {
	t.Helper()
	tg, err := ParseTarget(s)
	must(t, err)
	return tg
}

func TestDrain(t *testing.T) {
	all := []string{"web 10.1.0.1:80", "web 10.1.0.2:80", "api 10.1.0.1:80", "api 10.1.0.3:80"}
	for _, tc := range []struct {
		target  string
		drained []bool
	}{
		{"web", []bool{true, true, false, false}},
		{"10.1.0.1:80", []bool{true, false, true, false}},
		{"api/10.1.0.1:80", []bool{false, false, true, false}},
	} {
		t.Run(tc.target, func(t *testing.T) {
			s := New(Options{})
			list := []lb.Service{
				service("web", "tcp://10.0.0.1:80", "10.1.0.1:80", "10.1.0.2:80"),
				service("api", "tcp://10.0.0.2:80", "10.1.0.1:80", "10.1.0.3:80"),
			}
			file := s.Source("file")
			must(t, file.Replace(list))
			check := func(when string, want func(i int) bool) {
				t.Helper()
				for i, b := range all {
					if got := backend(t, s, b[:3], b[4:]).Drained; got != want(i) {
						t.Errorf("%s: %s drained: %v", when, b, got)
					}
				}
			}
			as := func(i int) bool { return tc.drained[i] }
			must(t, s.Drain(target(t, tc.target)))
			check("drained", as)
			before := s.Snapshot()
			must(t, s.Drain(target(t, tc.target)))
			if s.Snapshot() != before {
				t.Error("draining twice made a snapshot")
			}
			must(t, file.Replace(nil))
			must(t, file.Replace(list))
			check("gone and back", as)
			if d := s.Drained(); len(d) != 1 || d[0].String() != tc.target {
				t.Errorf("listed as %v", d)
			}
			must(t, s.Undrain(target(t, tc.target)))
			check("undrained", func(int) bool { return false })
		})
	}
}

func TestDrainOverlaps(t *testing.T) {
	s := New(Options{})
	must(t, s.Source("file").Upsert(service("web", "tcp://10.0.0.1:80", "10.1.0.1:80", "10.1.0.2:80")))
	must(t, s.Drain(target(t, "web")))
	must(t, s.Drain(target(t, "10.1.0.1:80")))
	must(t, s.Undrain(target(t, "web")))
	if !backend(t, s, "web", "10.1.0.1:80").Drained || backend(t, s, "web", "10.1.0.2:80").Drained {
		t.Error("what is drained twice needs two to undrain it; what once, one")
	}
	err := s.Undrain(target(t, "web/10.1.0.1:80"))
	wantError(t, err, "web/10.1.0.1:80", "not drained by itself", "10.1.0.1:80 is")
	if !errors.Is(err, ErrNotDrained) {
		t.Errorf("%v does not wrap ErrNotDrained", err)
	}
}

func TestDrainUnknown(t *testing.T) {
	s := New(Options{})
	must(t, s.Source("file").Upsert(service("web", "tcp://10.0.0.1:80", "10.1.0.1:80")))
	for tg, word := range map[string]string{
		"api":              `unknown service "api"`,
		"web/10.1.0.2:80":  `service "web" has none at 10.1.0.2:80`,
		"10.1.0.2:80":      "no service has one at 10.1.0.2:80",
		"web/x/10.1.0.1:1": `unknown service "web/x"`,
	} {
		for _, err := range []error{s.Drain(target(t, tg)), s.Undrain(target(t, tg))} {
			wantError(t, err, tg, word)
			if !errors.Is(err, ErrUnknownTarget) {
				t.Errorf("%v does not wrap ErrUnknownTarget", err)
			}
		}
	}
	if len(s.Drained()) != 0 {
		t.Errorf("drained: %v", s.Drained())
	}
	// What is drained can be undrained when it is gone.
	must(t, s.Drain(target(t, "web")))
	s.Source("file").Delete("web")
	must(t, s.Undrain(target(t, "web")))
}
