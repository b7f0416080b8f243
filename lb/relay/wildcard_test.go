package relay

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/store"
)

// freePort is a port at which nobody listens, at any address of the family.
func freePort(t *testing.T) uint16 {
	t.Helper()
	ln, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).AddrPort().Port()
}

func wildcard(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.IPv4Unspecified(), port) }

// What the guard is told of frontends at the wildcard address, and which of them have
// a socket of their own.
func TestWildcardFrontends(t *testing.T) {
	addr, _ := backend(t, testnet.Named("backend"))
	port := freePort(t)
	at := wildcard(port)
	exact := netip.AddrPortFrom(vip.Addr(), port)
	for _, tt := range []struct {
		name   string
		mode   capture.Mode
		before []lb.Service
		then   []lb.Service
		want   Rule
		own    bool
	}{
		{"shared", capture.Auto, nil, []lb.Service{service("any", at, addr)}, Rule{Answer: AnswerShared}, false},
		{"own by anyip", capture.AnyIP, nil, []lb.Service{service("any", at, addr)}, Rule{Answer: AnswerOwn}, true},
		{"no backends", capture.Auto, nil, []lb.Service{service("any", at)}, Rule{}, false},
		{"no backends, dropping", capture.Auto, nil, []lb.Service{dropping(flow.TCP, at)}, Rule{Answer: AnswerSilent}, false},
		{"dropping by anyip", capture.AnyIP, nil, []lb.Service{dropping(flow.TCP, at)}, Rule{Answer: AnswerSilent}, true},
		{"beside another of ours", capture.Auto, []lb.Service{service("exact", exact, addr)},
			[]lb.Service{service("exact", exact, addr), service("any", at, addr)}, Rule{Answer: AnswerOwn}, true},
		{"before another of ours", capture.Auto, []lb.Service{service("any", at, addr)},
			[]lb.Service{service("exact", exact, addr), service("any", at, addr)}, Rule{Answer: AnswerShared}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeGuard()
			w := newWorld(t, Options{Guard: fake, Capture: tt.mode})
			w.serve(tt.before...)
			w.serve(tt.then...)
			key := lb.FrontendKey{Proto: flow.TCP, Address: at}
			w.relay.mu.Lock()
			own := w.relay.listeners.open[key] != nil
			w.relay.mu.Unlock()
			if got := fake.rule(key); !got.equal(tt.want) || own != tt.own {
				t.Errorf("told %+v, a socket of its own %t; want %+v, %t", got, own, tt.want, tt.own)
			}
			w.serve()
			if got := fake.rule(key); !got.none() {
				t.Errorf("told %+v of what is gone", got)
			}
			w.leaks()
		})
	}
}

// A port that somebody has is left to him, at an address of this host and at all of
// them, and the guard is told nothing of it.
func TestPortOfSomebodyElse(t *testing.T) {
	for name, at := range map[string]func(netip.AddrPort) netip.AddrPort{
		"wildcard": func(a netip.AddrPort) netip.AddrPort { return wildcard(a.Port()) },
		"exact":    func(a netip.AddrPort) netip.AddrPort { return a },
	} {
		t.Run(name, func(t *testing.T) {
			addr, _ := backend(t, testnet.Named("backend"))
			ln, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			leftToHim(t, ln, at(ln.Addr().(*net.TCPAddr).AddrPort()), addr)
		})
	}
}

func leftToHim(t *testing.T, ln net.Listener, at, addr netip.AddrPort) {
	key := lb.FrontendKey{Proto: flow.TCP, Address: at}
	fake := newFakeGuard()
	w := newWorld(t, Options{Guard: fake})
	for _, s := range []lb.Service{service("any", at, addr), dropping(flow.TCP, at)} {
		if err := w.source.Replace([]lb.Service{s}); err != nil {
			t.Fatal(err)
		}
		testnet.Eventually(t, patience, "the frontend fails", func() error {
			if f := w.store.Failures(); !slices.ContainsFunc(f, func(f store.Failure) bool { return f.Service == s.Name && errors.Is(f.Err, capture.ErrInUse) }) {
				return errors.New("it does not")
			}
			return nil
		})
		if got := fake.rule(key); !got.none() {
			t.Errorf("told %+v", got)
		}
	}
	_ = ln.Close()
	testnet.Eventually(t, patience, "it is tried again", func() error {
		if fake.answer(key) != AnswerSilent {
			return errors.New("the guard does not know")
		}
		return nil
	})
}

// A socket at the wildcard address that comes over from a process without a guard stays
// in use: connections may wait in it.
func TestWildcardSocketComesOver(t *testing.T) {
	addr, _ := backend(t, testnet.Named("backend"))
	svc := service("any", wildcard(freePort(t)), addr)
	old := newWorld(t, Options{Loops: 1})
	old.serve(svc)
	h, in := begun(t, old.relay)
	fake := newFakeGuard()
	next := newWorld(t, Options{Loops: 1, Inherit: in, Guard: fake})
	next.serve(svc)
	h.Release()
	if err := next.relay.Begin(nil); err != nil {
		t.Fatal(err)
	}
	if got := fake.answer(svc.Frontends[0].FrontendKey); got != AnswerOwn {
		t.Errorf("answer %d", got)
	}
	c := dial(t, netip.AddrPortFrom(vip.Addr(), svc.Frontends[0].Address.Port()))
	if name, err := testnet.ReadName(c); err != nil || name != "backend" {
		t.Errorf("got %q, %v", name, err)
	}
	_ = c.Close()
}

// lines is a log that is read while it is written.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.all.String(), text)
}

// Without a guard the log says, once, what source ranges come to.
func TestNoGuardForSources(t *testing.T) {
	addr, _ := backend(t, testnet.Named("backend"))
	log := new(lines)
	w := newWorld(t, Options{Log: slog.New(slog.NewTextHandler(log, nil)), NoGuard: errors.New("too old a kernel")})
	w.serve(service("web", vip, addr))
	if n := log.count("no guard"); n != 0 {
		t.Errorf("%d warnings for nothing", n)
	}
	s := service("web", vip, addr)
	s.Frontends[0].AllowSources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	w.serve(s)
	wantReset(t, vip)
	s.DrainTimeout++
	w.serve(s)
	if n := log.count("too old a kernel"); n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}
}
