package doctor

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
)

// service makes one of frontends and backends.
func service(name string, frontends, backends []string) lb.Service {
	s := lb.Default(name)
	for _, text := range frontends {
		f, err := lb.ParseFrontend(text)
		if err != nil {
			panic(err)
		}
		s.Frontends = append(s.Frontends, f)
	}
	for _, text := range backends {
		b, err := lb.ParseBackend(text)
		if err != nil {
			panic(err)
		}
		s.Backends = append(s.Backends, b)
	}
	return s
}

func TestStatic(t *testing.T) {
	down := service("down", []string{"tcp://10.0.0.3:80"}, []string{"10.1.0.1:80"})
	down.Backends[0].State = lb.StateDown
	closed := service("closed", []string{"tcp://10.0.0.4:80"}, []string{"10.1.0.1:80"})
	closed.Allow = []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16")}
	closed.Deny = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	c := Config{
		SourceAddresses: []netip.Addr{netip.MustParseAddr("10.9.0.1")},
		Services: []lb.Service{
			service("fine", []string{"tcp://10.0.0.1:80"}, []string{"10.1.0.1:80", "10.1.0.2:80"}),
			service("empty", []string{"tcp://10.0.0.2:80"}, nil),
			down, closed,
			service("loop", []string{"tcp://10.0.0.5:80"}, []string{"10.0.0.5:80", "10.0.0.1:80"}),
			service("twice", []string{"tcp://10.0.0.7:80"}, []string{"10.1.0.1:80", "10.1.0.2:80", "10.1.0.1:80", "10.1.0.1:80"}),
			service("six", []string{"tcp://10.0.0.6:80"}, []string{"[fd00::1]:80", "[fd00::2]:80"}),
		},
	}
	var got []string
	for _, w := range Static(c) {
		got = append(got, w.Service+": "+w.String())
	}
	want := []string{
		"empty: has no backends: its clients are refused",
		"down: none of its backends takes new flows: its clients are refused",
		"closed: deny covers all of allow: no client may connect",
		"loop: backend 10.0.0.5:80 is a frontend of the same service: connections go round in a circle",
		"loop: backend 10.0.0.1:80 is a frontend of service fine",
		"twice: lists backend 10.1.0.1:80 more than once: it is one backend, as the entry says that lets it do most",
		"six: backend [fd00::1]:80: source.addresses has none of its address family",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestExamineConfig asks of a host what it has and what it has not.
func TestExamineConfig(t *testing.T) {
	testnet.RequireRoot(t)
	star := testnet.NewStar(t, 0)
	h := star.Balancer
	own, client := h.IP4.String(), star.Client.IP4
	l, err := h.Listen("tcp", netip.AddrPortFrom(h.IP4, 81))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	wild, err := h.Listen("tcp4", netip.MustParseAddrPort("0.0.0.0:2222"))
	if err != nil {
		t.Fatal(err)
	}
	defer wild.Close()

	works, fails := func() error { return nil }, func() error { return errors.New("too old") }
	for _, tc := range []struct {
		name     string
		mode     capture.Mode
		frontend string
		capture  string
		why      string
		problem  string
		without  []int
		guard    func() error
	}{
		{name: "configured", frontend: "tcp://" + own + ":80", capture: "bind", why: "address of "},
		{name: "wildcard", frontend: "tcp://0.0.0.0:80", capture: "bind", why: "every address"},
		{name: "loopback", frontend: "tcp://127.0.0.9:80", capture: "bind", why: "loopback"},
		{name: "anyip", frontend: "tcp://10.96.0.10:80", capture: "anyip", why: "a local route"},
		{name: "anyip IPv6", frontend: "tcp://[fd96::10]:80", capture: "anyip", why: "a local route"},
		{name: "taken", frontend: "tcp://" + own + ":81", capture: "bind", problem: "port 81 is taken"},
		{name: "absent address", mode: capture.Bind, frontend: "tcp://10.96.0.10:80", capture: "bind", problem: "is not configured on this host"},
		{name: "own address by anyip", mode: capture.AnyIP, frontend: "tcp://" + own + ":80", problem: "is an address of this host"},
		{name: "no route", frontend: "tcp://10.96.0.10:80", capture: "anyip", problem: "needs CAP_NET_ADMIN", without: []int{unix.CAP_NET_ADMIN}},
		{name: "low port", frontend: "tcp://" + own + ":80", capture: "bind", problem: "port 80 needs CAP_NET_BIND_SERVICE", without: []int{unix.CAP_NET_BIND_SERVICE}},
		{name: "guard", frontend: "tcp://10.96.0.10:80", capture: "sklookup", why: "a local route", guard: works},
		{name: "guard, IPv6", frontend: "tcp://[fd96::10]:80", capture: "sklookup", why: "a local route", guard: works},
		{name: "guard and anyip", mode: capture.AnyIP, frontend: "tcp://10.96.0.10:80", capture: "anyip", guard: works},
		{name: "guard and the host's own", frontend: "tcp://" + own + ":80", capture: "bind", guard: works},
		{name: "guard and a low port", frontend: "tcp://10.96.0.10:80", capture: "sklookup", guard: works, without: []int{unix.CAP_NET_BIND_SERVICE}},
		{name: "guard, low port, UDP", frontend: "udp://10.96.0.10:53", capture: "sklookup", guard: works, without: []int{unix.CAP_NET_BIND_SERVICE}, problem: "port 53 needs"},
		{name: "sklookup without a guard", mode: capture.SKLookup, frontend: "tcp://10.96.0.10:80", capture: "sklookup", guard: fails, problem: "capture: sklookup needs the guard: too old"},
		{name: "auto without a guard", frontend: "tcp://10.96.0.10:80", capture: "anyip", guard: fails},
		{name: "high port", frontend: "tcp://" + own + ":8080", capture: "bind", without: []int{unix.CAP_NET_BIND_SERVICE}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Config{Capture: tc.mode, Services: []lb.Service{service("web", []string{tc.frontend}, []string{"10.1.0.1:80"})}}
			var r Report
			h.Do(func() {
				host := newHost(Options{Guard: tc.guard})
				for _, capability := range tc.without {
					host.caps &^= 1 << capability
				}
				c.examine(host, &r)
			})
			if len(r.Frontends) != 1 || r.Frontends[0].Capture != tc.capture || !strings.Contains(r.Frontends[0].Why, tc.why) {
				t.Errorf("%+v", r.Frontends)
			}
			problems := strings.Join(r.Problems, "; ")
			if (problems == "") != (tc.problem == "") || !strings.Contains(problems, tc.problem) {
				t.Errorf("problems %q, want %q", problems, tc.problem)
			}
			exposed := strings.Contains(strings.Join(r.Warnings, "; "), "tcp 0.0.0.0:2222")
			guarded := tc.guard != nil && tc.guard() == nil
			if wantExposed := tc.capture != "" && tc.capture != "bind" && !guarded && !strings.Contains(tc.frontend, "["); exposed != wantExposed {
				t.Errorf("warnings %q", r.Warnings)
			}
		})
	}

	t.Run("sources and http", func(t *testing.T) {
		c := Config{
			SourceAddresses: []netip.Addr{h.IP4, client}, HTTP: own + ":81",
			Services: []lb.Service{service("web", []string{"tcp://" + own + ":81"}, []string{"10.1.0.1:80"})},
		}
		var r, busy Report
		h.Do(func() {
			r = Examine(t.Context(), Options{Config: &c})
			lock, err := admin.AcquireLock(admin.Holder{})
			if err != nil {
				t.Error(err)
				return
			}
			defer lock.Close()
			busy = Examine(t.Context(), Options{Config: &c})
		})
		if len(r.Problems) != 3 || r.Fine {
			t.Errorf("%q", r.Problems)
		}
		// Who runs already has these ports for good reason.
		if want := "source.addresses: " + client.String() + " is not configured on this host"; len(busy.Problems) != 1 || busy.Problems[0] != want {
			t.Errorf("beside an instance: %q", busy.Problems)
		}
	})
}
