package health

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	refused = outcome{result: flow.ProbeRefused}
	silent  = outcome{result: flow.ProbeTimeout}
	unable  = outcome{flow.ProbeLocal, "too many open files"}
)

// world is a checker under a running store, and probes that are answered by a
// function instead of the network.
type world struct {
	*Checker
	t        testing.TB
	store    *store.Store
	source   *store.Source
	registry *flow.Registry
	stop     func()

	mu     sync.Mutex // guards what follows
	log    bytes.Buffer
	health map[string]lb.HealthCheck
	answer func(context.Context, target) outcome
	begun  []begun
}

// begun is one probe.
type begun struct {
	at      time.Time
	address netip.AddrPort
}

// newWorld starts one. In a synctest bubble it must be ended by end.
func newWorld(t testing.TB, o Options) *world {
	w := &world{t: t, health: make(map[string]lb.HealthCheck), answer: func(context.Context, target) outcome { return passed }}
	w.registry = flow.NewRegistry(flow.Options{})
	w.store = store.New(store.Options{Registry: w.registry})
	w.source = w.store.Source("file")
	o.Store, o.Failing = w.store, w.registry.Failing()
	o.Log = slog.New(slog.NewTextHandler(writer(w.write), nil))
	w.Checker = newChecker(o, w.probed)
	w.store.Register(store.Backends, "health", w)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.store.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	return w
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

func (w *world) write(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log.Write(b)
}

func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

// Program gives the checker the services with the health checks of the test.
func (w *world) Program(_ context.Context, ch store.Change) []store.Failure {
	w.follow(ch.Services, ch.From.Service, func(name string) (*store.Service, bool) {
		published, ok := ch.To.Service(name)
		if !ok {
			return nil, false
		}
		changed := *published
		w.mu.Lock()
		defer w.mu.Unlock()
		changed.Health = w.health[name]
		return &changed, true
	})
	return nil
}

func (w *world) probed(ctx context.Context, t target) outcome {
	w.mu.Lock()
	w.begun = append(w.begun, begun{time.Now(), t.address})
	answer := w.answer
	w.mu.Unlock()
	return answer(ctx, t)
}

// answers says how probes go from now on.
func (w *world) answers(f func(target) outcome) {
	w.answersUntil(func(_ context.Context, t target) outcome { return f(t) })
}

func (w *world) answersUntil(f func(context.Context, target) outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

// probes takes the probes begun since the last call.
func (w *world) probes() []begun {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.begun
	w.begun = nil
	return b
}

// put publishes a service and waits until the checker knows it.
func (w *world) put(svc lb.Service, h lb.HealthCheck) {
	w.t.Helper()
	w.mu.Lock()
	svc.DrainTimeout = 30*time.Second + time.Duration(len(w.health)) // a change of health alone is none here
	if old, ok := w.health[svc.Name]; ok && old != h {
		svc.DrainTimeout += time.Since(time.Unix(0, 0)) + 1
	}
	w.health[svc.Name] = h
	w.mu.Unlock()
	if err := w.source.Upsert(svc); err != nil {
		w.t.Fatal(err)
	}
	w.programmed()
}

func (w *world) programmed() {
	w.t.Helper()
	if err := w.store.Programmed(w.t.Context(), w.store.Snapshot().Revision); err != nil {
		w.t.Fatal(err)
	}
}

// told is what the store publishes of a backend.
func (w *world) told(service string, i int) store.Health {
	w.t.Helper()
	svc, ok := w.store.Snapshot().Service(service)
	if !ok || i >= len(svc.Pool) {
		w.t.Fatalf("no backend %d of service %q", i, service)
	}
	return store.HealthOf(svc.Pool[i])
}

// picture is the backends of a service: + healthy, - unhealthy, ~ ramping.
func (w *world) picture(service string) string {
	w.t.Helper()
	svc, ok := w.store.Snapshot().Service(service)
	if !ok {
		w.t.Fatalf("no service %q", service)
	}
	var out strings.Builder
	for _, b := range svc.Pool {
		switch h := store.HealthOf(b); {
		case h.Unhealthy:
			out.WriteByte('-')
		case h.Ramp > 0:
			out.WriteByte('~')
		default:
			out.WriteByte('+')
		}
	}
	return out.String()
}

// soon is when what has just been found out has been published.
const soon = sendEvery + time.Millisecond

// pass lets time pass, and everything happen that is then due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// web is a service with n backends, 10.1.0.1:80 and on.
func web(n int) lb.Service { return named("web", 1, n) }

func named(name string, vip byte, n int) lb.Service {
	s := lb.Default(name)
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, vip}), 80)
	s.Frontends = []lb.Frontend{{FrontendKey: lb.FrontendKey{Proto: flow.TCP, Address: at}}}
	for i := range n {
		s.Backends = append(s.Backends, lb.Backend{Address: addr(i), Weight: 1})
	}
	return s
}

func addr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1 + byte(i>>16), byte(i >> 8), byte(i)}).Next(), 80)
}

// every is a TCP probe once a second, up and down after so many answers.
func every(rise, fall int) lb.HealthCheck {
	h := lb.DefaultHealth(lb.ProbeTCP)
	h.Interval, h.Timeout, h.Rise, h.Fall = time.Second, 500*time.Millisecond, rise, fall
	return h
}

// bubble runs a test in a synctest bubble with a world.
func bubble(t *testing.T, o Options, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, o)
		defer w.stop()
		f(t, w)
	})
}

func wantPicture(t *testing.T, w *world, service, want, when string, args ...any) {
	t.Helper()
	if got := w.picture(service); got != want {
		t.Errorf("%s: backends %s, want %s", fmt.Sprintf(when, args...), got, want)
	}
}
