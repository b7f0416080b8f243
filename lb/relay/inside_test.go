package relay

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/store"
)

// localTo is a service at vip of whose backends only local ones are for clients
// outside, and all for those inside.
func localTo(inside []netip.Prefix, backends ...netip.AddrPort) lb.Service {
	s := dropping(flow.TCP, vip, backends...)
	s.Frontends[0].Subset, s.Frontends[0].Inside = lb.LocalBackends, inside
	return s
}

var anyone = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}

// published is the frontend of vip as it is served.
func (w *world) published(s lb.Service) *store.Frontend {
	w.t.Helper()
	w.serve(s)
	fe, ok := w.store.Snapshot().Frontend(s.Frontends[0].FrontendKey)
	if !ok {
		w.t.Fatal("there is no frontend")
	}
	return fe
}

func TestInside(t *testing.T) {
	addr, _ := backend(t, testnet.Named("backend"))
	w := newWorld(t, Options{})
	fe := w.published(localTo([]netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd02::/64")}, addr))
	own := map[netip.Addr]struct{}{netip.MustParseAddr("192.0.2.1"): {}, netip.MustParseAddr("fe80::1"): {}}
	w.relay.mu.Lock()
	w.relay.insiders.know(own)
	all := w.relay.insiders.withHost(fe.Inside)
	w.relay.mu.Unlock()
	for text, want := range map[string]bool{
		"10.244.1.2": true, "10.245.1.2": false, "fd02::1": true, "fd03::1": false,
		"127.0.0.1": true, "127.9.0.1": true, "::1": true,
		"192.0.2.1": true, "192.0.2.2": false, "fe80::1": true, "fe80::1%lo": true, "fe80::2": false,
	} {
		a := netip.MustParseAddr(text)
		if got := w.relay.inside(fe, a); got != want {
			t.Errorf("%s is inside: %t", a, got)
		}
		if got := contains(all, a.WithZone("")); got != want {
			t.Errorf("the guard takes %s for inside: %t", a, got)
		}
	}
	plain := w.published(service("web", vip, addr))
	if w.relay.inside(plain, netip.MustParseAddr("127.0.0.1")) {
		t.Error("a client is inside where nobody is")
	}
}

// Without a guard a client outside is reset when there is no backend for it; one
// inside, as this host is, is served.
func TestInsideWithoutAGuard(t *testing.T) {
	addr, _ := backend(t, testnet.Named("backend"))
	w := newWorld(t, Options{})
	w.serve(localTo([]netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, addr))
	c := dial(t, vip)
	if name, err := testnet.ReadName(c); err != nil || name != "backend" {
		t.Errorf("got %q, %v", name, err)
	}
	_ = c.Close()

	none := localTo([]netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, addr)
	none.Frontends[0].Subset, none.Frontends[0].InsideSubset = lb.AllBackends, lb.LocalBackends
	w.serve(none)
	refused, err := net.Dial("tcp", vip.String())
	if err == nil {
		_, err = testnet.ReadName(refused)
		_ = refused.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want a reset", err)
	}
}

// A UDP session begins where its client may, and stays there whatever subset it may use
// later. It goes when the backend does.
func TestUDPInside(t *testing.T) {
	a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
	w := newWorld(t, Options{})
	s := udpOf(service("dns", udpVIP, a.addr, b.addr))
	s.Frontends[0].Inside = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	s.Frontends[0].Subset = lb.LocalBackends
	w.serve(s)
	c := udpClientTo(t, udpVIP)
	name := asked(t, c)
	stays, moves := a, b
	if name == "b" {
		stays, moves = b, a
	}
	s.Frontends = slices.Clone(s.Frontends)
	s.Frontends[0].WhenNone = lb.Drop
	w.serve(s)
	ask(t, c, stays)
	s.Frontends = slices.Clone(s.Frontends)
	s.Backends = slices.Clone(s.Backends)
	s.Frontends[0].InsideSubset, s.Frontends[0].Subset = lb.LocalBackends, lb.AllBackends
	for i := range s.Backends {
		s.Backends[i].Local = s.Backends[i].Address == moves.addr
	}
	w.serve(s)
	ask(t, c, stays)
	ask(t, udpClientTo(t, udpVIP), moves)
	s.Backends = slices.DeleteFunc(slices.Clone(s.Backends), func(b lb.Backend) bool { return b.Address == stays.addr })
	w.serve(s)
	ask(t, c, moves)
}

// What the guard is told of a frontend by who asks.
func TestRules(t *testing.T) {
	addr, _ := backend(t, testnet.Named("backend"))
	fake := newFakeGuard()
	w := newWorld(t, Options{Guard: fake, Capture: capture.Bind})
	some, proxies := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	change := func(s lb.Service, change func(*lb.Service)) lb.Service { change(&s); return s }
	for _, tt := range []struct {
		name   string
		s      lb.Service
		want   Rule
		inside bool // clients inside are told apart
	}{
		{"all", service("web", vip, addr), Rule{Answer: AnswerOwn}, false},
		{"none", service("web", vip), Rule{}, false},
		{"some", change(service("web", vip, addr), func(s *lb.Service) { s.Frontends[0].AllowSources = some }),
			Rule{Answer: AnswerOwn, Allow: some}, false},
		{"some, by a proxy", change(service("web", vip, addr), func(s *lb.Service) { s.Frontends[0].AllowSources, s.AcceptProxy = some, proxies }),
			Rule{Answer: AnswerOwn, Allow: slices.Concat(some, proxies)}, false},
		{"some, and no backends", change(service("web", vip), func(s *lb.Service) { s.Frontends[0].AllowSources = some }), Rule{}, false},
		{"some, silence", change(dropping(flow.TCP, vip), func(s *lb.Service) { s.Frontends[0].AllowSources = some }),
			Rule{Answer: AnswerSilent, Allow: some}, false},
		{"inside alone", localTo(anyone, addr), Rule{Answer: AnswerSilent, InsideAnswer: AnswerOwn}, true},
		{"inside alone, and refusal", change(localTo(anyone, addr), func(s *lb.Service) { s.Frontends[0].WhenNone = lb.Refuse }),
			Rule{Answer: AnswerRefuse, InsideAnswer: AnswerOwn}, true},
		{"both sides", change(localTo(anyone, addr), func(s *lb.Service) { s.Backends[0].Local = true }), Rule{Answer: AnswerOwn}, false},
		{"neither", localTo(anyone), Rule{Answer: AnswerSilent}, false},
		{"some of those inside", change(localTo(anyone, addr), func(s *lb.Service) { s.Frontends[0].AllowSources = some }),
			Rule{Answer: AnswerSilent, InsideAnswer: AnswerOwn, Allow: some}, true},
	} {
		w.serve(tt.s)
		got := fake.rule(lb.FrontendKey{Proto: flow.TCP, Address: vip})
		if tt.inside != (len(got.Inside) > 0) || tt.inside && !contains(got.Inside, netip.IPv6Loopback()) {
			t.Errorf("%s: inside are %v", tt.name, got.Inside)
		}
		if got.Inside = nil; !got.equal(tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
	w.leaks()
}

// When this host gets an address, the guard hears of it.
func TestGuardFollowsThisHost(t *testing.T) {
	addr, _ := backend(t, testnet.Named("backend"))
	fake := newFakeGuard()
	w := newWorld(t, Options{Guard: fake})
	w.relay.insiders.know(map[netip.Addr]struct{}{netip.MustParseAddr("192.0.2.1"): {}}) // and so it follows nothing
	w.serve(localTo([]netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, addr))
	key, own := lb.FrontendKey{Proto: flow.TCP, Address: vip}, netip.MustParseAddr("192.0.2.77")
	if got := fake.rule(key); contains(got.Inside, own) || !contains(got.Inside, netip.MustParseAddr("192.0.2.1")) {
		t.Fatalf("inside are %v", got.Inside)
	}
	if err := w.relay.tellInsiders(map[netip.Addr]struct{}{own: {}}); err != nil {
		t.Fatal(err)
	}
	if got := fake.rule(key); !contains(got.Inside, own) || contains(got.Inside, netip.MustParseAddr("192.0.2.1")) || !contains(got.Inside, netip.MustParseAddr("10.244.9.9")) || got.InsideAnswer != AnswerOwn {
		t.Errorf("got %+v", got)
	}
}
