package pick

import (
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const second = time.Second

// rig is a store with services, and a picker over it.
type rig struct {
	t        testing.TB
	registry *flow.Registry
	store    *store.Store
	picker   *Picker
	now      time.Time
}

func newRig(t testing.TB, o Options) *rig {
	reg := flow.NewRegistry(flow.Options{})
	return &rig{
		t: t, registry: reg, store: store.New(store.Options{Registry: reg}),
		picker: New(o), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

// family is the addresses of a test.
type family struct{ name, frontend, prefix, suffix, client string }

var families = []family{
	{"IPv4", "tcp://10.96.0.10:80", "10.0.0.", ":80", "192.0.2.7:40000"},
	{"IPv6", "tcp://[fd96::10]:80", "[fd02::", "]:80", "[2001:db8::7]:40000"},
}

func eachFamily(t *testing.T, f func(*testing.T, family)) {
	for _, fam := range families {
		t.Run(fam.name, func(t *testing.T) { f(t, fam) })
	}
}

// backend is the nth backend's address.
func (f family) backend(n string) string { return f.prefix + n + f.suffix }

// service is web with backends 1, 2, …, as changed by change.
func (f family) service(change func(*lb.Service), backends ...string) lb.Service {
	svc := lb.Default("web")
	svc.Affinity = lb.Affinity{By: lb.ByClientIP, Timeout: time.Minute}
	fe, err := lb.ParseFrontend(f.frontend)
	if err != nil {
		panic(err)
	}
	svc.Frontends = []lb.Frontend{fe}
	for _, n := range backends {
		b, err := lb.ParseBackend(f.backend(n))
		if err != nil {
			panic(err)
		}
		svc.Backends = append(svc.Backends, b)
	}
	if change != nil {
		change(&svc)
	}
	return svc
}

func (r *rig) publish(services ...lb.Service) {
	r.t.Helper()
	if err := r.store.Source("test").Replace(services); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) frontend(url string) *store.Frontend {
	r.t.Helper()
	fe, err := lb.ParseFrontend(url)
	if err != nil {
		r.t.Fatal(err)
	}
	out, ok := r.store.Snapshot().Frontend(fe.FrontendKey)
	if !ok {
		r.t.Fatalf("no frontend %s", url)
	}
	return out
}

// opened is a flow, committed to its backend.
type opened struct {
	rec    *flow.Record
	choice Choice
}

func (o opened) backend() string { return o.choice.Backend.Address.String() }

// open picks and commits for a new flow of the client. Dialling the backends in
// refusing fails.
func (r *rig) open(frontend, client string, refusing ...string) opened {
	r.t.Helper()
	o, err := r.tryOpen(frontend, client, refusing...)
	if err != nil {
		r.t.Fatalf("flow of %s: %v", client, err)
	}
	return o
}

func (r *rig) tryOpen(frontend, client string, refusing ...string) (opened, error) {
	fe, from := r.frontend(frontend), netip.MustParseAddrPort(client)
	rec := r.registry.Open(flow.Spec{Proto: flow.TCP, Service: "web", Client: from, Frontend: fe.Address})
	var tried []*sched.Backend
	for {
		c, err := r.picker.Pick(Request{Frontend: fe, Client: from, Now: r.now, Tried: tried})
		if err != nil {
			rec.Finish(flow.ByBaton, flow.ReasonNoBackend)
			return opened{}, err
		}
		if !r.picker.Commit(rec, fe, c, r.now) {
			continue
		}
		if !contains(refusing, c.Backend.Address.String()) {
			return opened{rec, c}, nil
		}
		rec.DialFailed(flow.DialRefused)
		tried = append(tried, c.Backend)
	}
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

func (o opened) check(t *testing.T, backend string, by flow.Picked) {
	t.Helper()
	if o.backend() != backend || o.choice.Picked != by {
		t.Errorf("went to %s by %s, want %s by %s", o.backend(), o.choice.Picked, backend, by)
	}
	if v := o.rec.View(); v.Backend.String() != backend || v.Picked != by {
		t.Errorf("the record says %s by %s, want %s by %s", v.Backend, v.Picked, backend, by)
	}
}
