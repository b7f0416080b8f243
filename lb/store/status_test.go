package store

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/baton-lb/baton/lb"
)

func TestFrontendStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		web := service("web", "tcp://10.0.0.1:80", "10.1.0.1:80")
		must(t, s.Source("file").Upsert(web))
		k := web.Frontends[0].FrontendKey
		check := func(when string, want Status) {
			t.Helper()
			synctest.Wait()
			if got := s.FrontendStatus(k); got != want {
				t.Errorf("%s: %+v, want %+v", when, got, want)
			}
		}
		check("before Run", Status{Pending, "not programmed yet"})
		l := startLoop(t, s)
		defer l.stop(t)
		check("programmed", Status{State: Ready})
		s.SetHealth("web", web.Backends[0].Address, Health{Unhealthy: true})
		check("unhealthy", Status{Ready, "all backends are unhealthy: using them all"})
		must(t, s.Drain(Target{Service: "web"}))
		check("drained", Status{Ready, "no usable backends: refusing"})
		web.Backends = nil
		must(t, l.file.Upsert(web))
		check("empty", Status{Ready, "no usable backends: refusing"})
		local := service("web", "tcp://10.0.0.1:80", "10.1.0.1:80")
		local.Frontends[0].Subset, local.Frontends[0].WhenNone = lb.LocalBackends, lb.Drop
		local.Frontends[0].Inside = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
		must(t, s.Undrain(Target{Service: "web"}))
		must(t, l.file.Replace([]lb.Service{local}))
		check("local, none is", Status{Ready, "no usable backends for clients outside: dropping"})
		local.Frontends = slices.Clone(local.Frontends)
		local.Frontends[0].Subset, local.Frontends[0].InsideSubset = lb.AllBackends, lb.LocalBackends
		must(t, l.file.Replace([]lb.Service{local}))
		check("local inside, none is", Status{Ready, "no usable backends for clients inside: dropping"})
		must(t, l.file.Replace(nil))
		check("deleted", Status{})
		must(t, l.file.Replace([]lb.Service{service("any", "tcp://0.0.0.0:80")}))
		check("only a wildcard", Status{})
	})
}
