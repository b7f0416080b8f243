package relay

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/store"
)

// fakeGuard keeps what it is told.
type fakeGuard struct {
	mu      sync.Mutex // guards what follows
	vips    map[netip.Addr]bool
	answers map[lb.FrontendKey]Rule
	calls   int
	fail    error
	asked   func(map[lb.FrontendKey]Rule) // called by Answer first
}

var _ Guard = (*fakeGuard)(nil)

func newFakeGuard() *fakeGuard {
	return &fakeGuard{vips: make(map[netip.Addr]bool), answers: make(map[lb.FrontendKey]Rule)}
}

func (g *fakeGuard) call(do func()) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	do() // a call that fails may have done all the same
	return g.fail
}

func (g *fakeGuard) Protect(vips []netip.Addr) error {
	return g.call(func() {
		for _, a := range vips {
			g.vips[a] = true
		}
	})
}

func (g *fakeGuard) Unprotect(vips []netip.Addr) error {
	return g.call(func() {
		for _, a := range vips {
			delete(g.vips, a)
		}
	})
}

func (g *fakeGuard) Answer(at map[lb.FrontendKey]Rule) error {
	if g.asked != nil {
		g.asked(at)
	}
	return g.call(func() {
		for k, rule := range at {
			if rule.none() {
				delete(g.answers, k)
				continue
			}
			g.answers[k] = rule
		}
	})
}

func (g *fakeGuard) Share(int) error { return g.call(func() {}) }

func (g *fakeGuard) answer(k lb.FrontendKey) Answer { return g.rule(k).Answer }

func (g *fakeGuard) rule(k lb.FrontendKey) Rule {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.answers[k]
}

func (g *fakeGuard) setFail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail = err
}

func newGuarding(t *testing.T, guard *fakeGuard, mode capture.Mode) *guarding {
	t.Helper()
	g := new(guarding)
	if err := g.init(Options{Guard: guard, Capture: mode}); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGuardingTellsWhatIsNew(t *testing.T) {
	fake := newFakeGuard()
	g := newGuarding(t, fake, capture.Auto)
	some := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	a, b := lb.FrontendKey{Proto: flow.TCP, Address: vip}, lb.FrontendKey{Proto: flow.UDP, Address: vip}
	for _, tt := range []struct {
		name  string
		say   map[lb.FrontendKey]Rule
		want  map[lb.FrontendKey]Rule
		calls int
	}{
		{"two", map[lb.FrontendKey]Rule{a: {Answer: AnswerOwn}, b: {Answer: AnswerRefuse}}, map[lb.FrontendKey]Rule{a: {Answer: AnswerOwn}, b: {Answer: AnswerRefuse}}, 1},
		{"nothing new", map[lb.FrontendKey]Rule{a: {Answer: AnswerOwn}}, map[lb.FrontendKey]Rule{a: {Answer: AnswerOwn}, b: {Answer: AnswerRefuse}}, 0},
		{"one of two", map[lb.FrontendKey]Rule{a: {Answer: AnswerOwn}, b: {Answer: AnswerOwn}}, map[lb.FrontendKey]Rule{a: {Answer: AnswerOwn}, b: {Answer: AnswerOwn}}, 1},
		{"for some", map[lb.FrontendKey]Rule{a: {Answer: AnswerOwn, Allow: some}}, map[lb.FrontendKey]Rule{a: {Answer: AnswerOwn, Allow: some}, b: {Answer: AnswerOwn}}, 1},
		{"nothing new of them", map[lb.FrontendKey]Rule{a: {Answer: AnswerOwn, Allow: slices.Clone(some)}}, map[lb.FrontendKey]Rule{a: {Answer: AnswerOwn, Allow: some}, b: {Answer: AnswerOwn}}, 0},
		{"forgotten", map[lb.FrontendKey]Rule{a: {}}, map[lb.FrontendKey]Rule{b: {Answer: AnswerOwn}}, 1},
		{"never known", map[lb.FrontendKey]Rule{a: {}}, map[lb.FrontendKey]Rule{b: {Answer: AnswerOwn}}, 0},
	} {
		before := fake.calls
		if err := g.tell(tt.say); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if !maps.EqualFunc(fake.answers, tt.want, Rule.equal) || !maps.EqualFunc(g.told, tt.want, Rule.equal) || fake.calls-before != tt.calls {
			t.Errorf("%s: the guard knows %v, we %v, after %d calls; want %v after %d",
				tt.name, fake.answers, g.told, fake.calls-before, tt.want, tt.calls)
		}
	}
}

// What a guard that failed knows is not known: it is told again, whatever that is.
func TestGuardingAfterAFailure(t *testing.T) {
	fake := newFakeGuard()
	g := newGuarding(t, fake, capture.Auto)
	k := lb.FrontendKey{Proto: flow.TCP, Address: vip}
	fake.fail = errors.New("no memory")
	if err := g.tell(map[lb.FrontendKey]Rule{k: {Answer: AnswerShared}}); !errors.Is(err, fake.fail) {
		t.Fatalf("got %v", err)
	}
	fake.fail = nil
	if err := g.tell(map[lb.FrontendKey]Rule{k: {}}); err != nil {
		t.Fatal(err)
	}
	if len(fake.answers) > 0 || len(g.told) > 0 {
		t.Errorf("the guard knows %v, we %v", fake.answers, g.told)
	}
}

func TestGuardingProtects(t *testing.T) {
	fake := newFakeGuard()
	g := newGuarding(t, fake, capture.Auto)
	a, b := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd96::1")
	for _, vips := range [][]netip.Addr{{a}, {a, b}, {a, b}} {
		if err := g.protect(vips); err != nil {
			t.Fatal(err)
		}
	}
	if fake.calls != 2 || len(fake.vips) != 2 || !g.shares(a) || g.shares(vip.Addr()) {
		t.Errorf("%d calls, protected %v", fake.calls, fake.vips)
	}
	if err := g.unprotect([]netip.Addr{a, b, vip.Addr()}, map[netip.Addr]struct{}{b: {}}); err != nil {
		t.Fatal(err)
	}
	if fake.vips[a] || !fake.vips[b] || g.shares(a) || !g.shares(b) {
		t.Errorf("protected %v", fake.vips)
	}
	fake.fail = errors.New("no")
	if err := g.protect([]netip.Addr{a}); !errors.Is(err, fake.fail) || g.shares(a) {
		t.Errorf("got %v", err)
	}
}

func TestGuardingByMode(t *testing.T) {
	if err := new(guarding).init(Options{Capture: capture.SKLookup, NoGuard: os.ErrPermission}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("sklookup without a guard: %v", err)
	}
	a := netip.MustParseAddr("10.96.0.1")
	for mode, shares := range map[capture.Mode]bool{capture.Auto: true, capture.SKLookup: true, capture.AnyIP: false} {
		g := newGuarding(t, newFakeGuard(), mode)
		if err := g.protect([]netip.Addr{a}); err != nil || g.shares(a) != shares {
			t.Errorf("%s: shares %t, %v", mode, g.shares(a), err)
		}
	}
}

// silence checks that a client hears nothing at an address: neither a connection
// nor a refusal.
func silence(t *testing.T, network string, at netip.AddrPort) {
	t.Helper()
	c, err := net.DialTimeout(network, at.String(), 300*time.Millisecond)
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
		if network == "udp" {
			_, _ = c.Write([]byte("?"))
			_, err = c.Read(make([]byte, 16))
		}
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%s %s: got %v, want silence", network, at, err)
	}
}

// dropping is a service that drops when it has no usable backends.
func dropping(proto flow.Proto, at netip.AddrPort, backends ...netip.AddrPort) lb.Service {
	s := service(proto.String(), at, backends...)
	s.Frontends[0].Proto, s.Frontends[0].WhenNone = proto, lb.Drop
	return s
}

func TestDropWithoutAGuard(t *testing.T) {
	addr, _ := backend(t, testnet.Named("backend"))
	w := newWorld(t, Options{})
	w.serve(dropping(flow.TCP, vip), dropping(flow.UDP, vip))
	silence(t, "tcp", vip)
	silence(t, "udp", vip)

	w.serve(dropping(flow.TCP, vip, addr))
	c := dial(t, vip)
	defer c.Close()
	if name, err := testnet.ReadName(c); err != nil || name != "backend" {
		t.Errorf("got %q, %v", name, err)
	}
	drained := dropping(flow.TCP, vip, addr)
	drained.Backends[0].State = lb.StateDrain
	w.serve(drained)
	silence(t, "tcp", vip)
	if err := testnet.Ask(c, "still there?"); err != nil {
		t.Errorf("the connection from before: %v", err)
	}
	_ = c.Close()
}

func TestDropWithAGuard(t *testing.T) {
	fake := newFakeGuard()
	addr, _ := backend(t, testnet.Named("backend"))
	w := newWorld(t, Options{Guard: fake})
	tcp, udp := lb.FrontendKey{Proto: flow.TCP, Address: vip}, lb.FrontendKey{Proto: flow.UDP, Address: vip}
	for _, tt := range []struct {
		name     string
		services []lb.Service
		want     [2]Answer
	}{
		{"no backends", []lb.Service{dropping(flow.TCP, vip), dropping(flow.UDP, vip)}, [2]Answer{AnswerSilent, AnswerSilent}},
		{"a backend", []lb.Service{dropping(flow.TCP, vip, addr), dropping(flow.UDP, vip, addr)}, [2]Answer{AnswerOwn, AnswerOwn}},
		{"none again", []lb.Service{dropping(flow.TCP, vip), dropping(flow.UDP, vip)}, [2]Answer{AnswerSilent, AnswerSilent}},
		{"another policy", []lb.Service{service("tcp", vip)}, [2]Answer{}},
		{"gone", nil, [2]Answer{}},
	} {
		w.serve(tt.services...)
		if got := [2]Answer{fake.answer(tcp), fake.answer(udp)}; got != tt.want {
			t.Errorf("%s: answers %v, want %v", tt.name, got, tt.want)
		}
	}
	w.leaks()
}

// The guard knows before a socket closes, so that none of somebody else's is found
// in its place.
func TestGuardKnowsFirst(t *testing.T) {
	addr, _ := backend(t, testnet.Named("backend"))
	fake, silenced := newFakeGuard(), 0
	fake.asked = func(at map[lb.FrontendKey]Rule) {
		if at[lb.FrontendKey{Proto: flow.TCP, Address: vip}].Answer != AnswerSilent {
			return
		}
		silenced++
		c, err := net.Dial("tcp", vip.String())
		if errors.Is(err, unix.ECONNREFUSED) {
			t.Error("the socket has closed already")
		}
		if err == nil { // else it was taken, and reset for want of a backend
			_ = c.Close()
		}
	}
	w := newWorld(t, Options{Guard: fake})
	w.serve(dropping(flow.TCP, vip, addr))
	w.serve(dropping(flow.TCP, vip))
	if silenced != 1 {
		t.Errorf("silenced %d times", silenced)
	}
}

// A guard that fails fails the frontends, and is told again.
func TestGuardFails(t *testing.T) {
	fake := newFakeGuard()
	w := newWorld(t, Options{Guard: fake})
	fake.setFail(errors.New("no memory"))
	if err := w.source.Replace([]lb.Service{dropping(flow.TCP, vip)}); err != nil {
		t.Fatal(err)
	}
	testnet.Eventually(t, patience, "the frontend fails", func() error {
		if f := w.store.Failures(); !slices.ContainsFunc(f, func(f store.Failure) bool { return errors.Is(f.Err, fake.fail) }) {
			return errors.New("it does not")
		}
		return nil
	})
	fake.setFail(nil)
	testnet.Eventually(t, patience, "it is tried again", func() error {
		if f := w.store.Failures(); len(f) > 0 {
			return f[0]
		}
		return nil
	})
	if got := fake.answer(lb.FrontendKey{Proto: flow.TCP, Address: vip}); got != AnswerSilent {
		t.Errorf("answer %d", got)
	}
}
