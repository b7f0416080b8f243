package steer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/steer/program"
)

// A service as the store changes it: the program is told what differs, and of nothing that it does not know.
func TestProgramming(t *testing.T) {
	w := newWorld(t, newKernel(t))
	w.apply(web(2))
	k := w.kernel
	calls := 0
	k.see(func() {
		if len(k.services) != 1 || len(k.backends) != 2 || len(k.pools) != 1 || len(k.frontends) != 1 {
			t.Fatalf("%d services, %d backends, %d pools, %d frontends", len(k.services), len(k.backends), len(k.pools), len(k.frontends))
		}
		if f := k.frontends[vip]; f.Closed != program.SourceOutside || f.Keep || k.pools[f.Outside].Answer != program.ByTicket || f.Inside != f.Outside {
			t.Errorf("%+v, %+v", f, k.pools[f.Outside])
		}
		calls = k.calls
	})
	w.apply(web(2, func(s *lb.Service) { s.DrainTimeout++ }))
	k.see(func() {
		if k.calls != calls {
			t.Errorf("%d updates for nothing", k.calls-calls)
		}
	})

	for _, tt := range []struct {
		name   string
		change func(*lb.Service)
		want   program.Answer
	}{
		{"source-hash", func(s *lb.Service) { s.Balance = lb.SourceHash }, program.ByTable},
		{"maglev", func(s *lb.Service) { s.Balance = lb.Maglev }, program.ByTable},
		{"a table asked for", func(s *lb.Service) { s.Steer.Choose = lb.ChooseTable }, program.ByTable},
		{"least-connections", func(s *lb.Service) { s.Balance = lb.LeastConnections }, program.ByTicket},
		{"no backend", func(s *lb.Service) { s.Backends = nil }, program.Refuse},
		{"none, to be dropped", func(s *lb.Service) { s.Backends, s.Frontends[0].WhenNone = nil, lb.Drop }, program.Drop},
		{"all down", func(s *lb.Service) { s.Backends[0].State, s.Backends[1].State = lb.StateDown, lb.StateDown }, program.Refuse},
	} {
		w.apply(web(2, tt.change))
		if got := k.pool().Answer; got != tt.want {
			t.Errorf("%s: answer %d, want %d", tt.name, got, tt.want)
		}
	}

	w.apply()
	w.eventually("nothing is left", func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if n := len(k.services) + len(k.backends) + len(k.pools) + len(k.frontends) + len(k.sources); n != 0 {
			return fmt.Errorf("%d services, %d backends, %d pools, %d frontends, %d sources", len(k.services), len(k.backends), len(k.pools), len(k.frontends), len(k.sources))
		}
		return nil
	})
}

// What a service and its frontend say of clients becomes one list in which the longest prefix counts.
func TestSources(t *testing.T) {
	p := func(s ...string) (list []netip.Prefix) {
		for _, v := range s {
			list = append(list, netip.MustParsePrefix(v))
		}
		return list
	}
	for _, tt := range []struct {
		name  string
		rules rules
		want  map[string]program.Verdict
	}{
		{"nothing", rules{}, map[string]program.Verdict{"192.0.2.1": program.SourceOutside, "2001:db8::1": program.SourceOutside}},
		{"deny wins", rules{deny: p("10.0.0.0/8"), allow: p("10.1.0.0/16", "192.0.2.0/24")}, map[string]program.Verdict{
			"10.1.2.3": program.SourceRefused, "10.2.2.3": program.SourceRefused, "192.0.2.1": program.SourceOutside, "198.51.100.1": program.SourceRefused,
		}},
		{"deny in allow", rules{deny: p("10.1.2.0/24"), allow: p("10.0.0.0/8")}, map[string]program.Verdict{
			"10.1.2.3": program.SourceRefused, "10.1.3.3": program.SourceOutside, "11.0.0.1": program.SourceRefused,
		}},
		{"ranges of a balancer", rules{only: p("203.0.113.0/24"), inside: p("10.244.0.0/16")}, map[string]program.Verdict{
			"203.0.113.9": program.SourceOutside, "192.0.2.1": program.SourceDropped, "10.244.1.1": program.SourceDropped,
		}},
		{"inside", rules{inside: p("10.244.0.0/16", "fd00::/64"), deny: p("10.244.7.0/24")}, map[string]program.Verdict{
			"10.244.1.1": program.SourceInside, "10.244.7.1": program.SourceRefused, "fd00::1": program.SourceInside, "fd01::1": program.SourceOutside,
		}},
	} {
		list, others := tt.rules.flatten()
		for client, want := range tt.want {
			got, longest := others.Verdict, -1
			for _, s := range list {
				if s.Prefix.Contains(netip.MustParseAddr(client)) && s.Prefix.Bits() > longest {
					got, longest = s.Verdict, s.Prefix.Bits()
				}
			}
			if got != want {
				t.Errorf("%s: %s is %d, want %d: %v", tt.name, client, got, want, list)
			}
		}
	}
}

// Addresses are kept of those who are said, and of all where nobody is.
func TestKeepSources(t *testing.T) {
	pods := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	for _, tt := range []struct {
		rules        rules
		pod, another bool
	}{
		{rules{}, false, false},
		{rules{keep: pods}, false, false},
		{rules{keeps: true}, true, true},
		{rules{keeps: true, keep: pods}, true, false},
		{rules{keeps: true, keep: pods, inside: pods}, true, false},
		{rules{keeps: true, inside: pods}, true, true},
	} {
		list, others := tt.rules.flatten()
		pod := others.Keep
		for _, s := range list {
			pod = s.Keep
		}
		if pod != tt.pod || others.Keep != tt.another {
			t.Errorf("%+v: pods %v, others %v", tt.rules, pod, others.Keep)
		}
	}
}

// Flows have records, from what the program tells; and from a look at it, where that is lost.
func TestRecords(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("deaf=%v", deaf), func(t *testing.T) {
			w := newWorld(t, newKernel(t))
			w.apply(web(2))
			w.kernel.see(func() { w.kernel.deaf = deaf })
			r := w.begin()
			w.eventually("it has a record", func() error {
				rec, ok := w.registry.Get(idOf(r))
				if !ok {
					return errors.New("none")
				}
				if v := rec.View(); v.Mode != flow.ModeSteer || v.Path != flow.PathBPF || v.Service != "web" || v.Client != r.Client || v.Backend.Port() != 8080 || v.Picked != flow.ByAlgorithm {
					t.Errorf("%+v", v)
				}
				return nil
			})
			w.kernel.end(r, flow.ByBackend, false)
			if deaf {
				w.kernel.age(r)
			}
			w.ended(r, flow.ByBackend, flow.ReasonClosed)
			if r = w.begin(); !deaf {
				w.kernel.end(r, flow.ByClient, true)
				w.ended(r, flow.ByClient, flow.ReasonReset)
			}
		})
	}
}

// A connection that is silent for too long is reset at both sides, a session is forgotten.
func TestIdle(t *testing.T) {
	w := newWorld(t, newKernel(t))
	udp := lb.FrontendKey{Proto: flow.UDP, Address: vip.Address}
	w.apply(web(2, func(s *lb.Service) { s.Frontends = append(s.Frontends, lb.Frontend{FrontendKey: udp}) }))
	tcp := w.begin()
	session, _ := w.kernel.begin(udp, w.client())
	kept := w.begin()
	w.kernel.age(tcp)
	w.kernel.age(session)
	w.ended(tcp, flow.ByBaton, flow.ReasonIdle)
	w.ended(session, flow.ByBaton, flow.ReasonIdle)
	w.kernel.see(func() {
		if !w.kernel.resets[tcp] || w.kernel.resets[session] {
			t.Errorf("reset: %v", w.kernel.resets)
		}
	})
	if _, ok := w.kernel.Lookup(session); ok {
		t.Error("the session is there")
	}
	if _, ok := w.registry.Get(idOf(kept)); !ok {
		t.Error("a flow that is not idle has ended")
	}
}

// A connection of which one side goes on alone for too long has lost the other; one of which both do, or neither, has not.
func TestPeerLost(t *testing.T) {
	w := newWorld(t, newKernel(t))
	w.apply(web(2, func(s *lb.Service) { s.Timeouts.PeerLost = 300 * time.Millisecond }))
	lost, alive, quiet := w.begin(), w.begin(), w.begin()
	w.eventually("the other side is given up", func() error {
		w.kernel.see(func() {
			v := w.kernel.flows[lost]
			v.Counters.PacketsToBackend++
			w.kernel.flows[lost] = v
			v = w.kernel.flows[alive]
			v.Counters.PacketsToBackend++
			v.Counters.PacketsToClient++
			w.kernel.flows[alive] = v
		})
		if _, ok := w.registry.Get(idOf(lost)); ok {
			return errors.New("it is there")
		}
		return nil
	})
	w.ended(lost, flow.ByBaton, flow.ReasonPeerLost)
	for _, r := range []program.Ref{alive, quiet} {
		if _, ok := w.registry.Get(idOf(r)); !ok {
			t.Error("one that has lost nobody has ended")
		}
	}
}

// Sessions of a backend that goes end, so that their clients find another one; its connections stay. Its number is free when the last has ended.
func TestBackendGoes(t *testing.T) {
	w := newWorld(t, newKernel(t))
	udp := lb.FrontendKey{Proto: flow.UDP, Address: vip.Address}
	both := func(s *lb.Service) { s.Frontends = append(s.Frontends, lb.Frontend{FrontendKey: udp}) }
	w.apply(web(1, both))
	connection := w.begin()
	session, _ := w.kernel.begin(udp, w.client())
	w.apply(web(0, both, func(s *lb.Service) { s.Backends = []lb.Backend{{Address: backendAt(1), Weight: 1}} }))
	w.ended(session, flow.ByBaton, flow.ReasonBackendRemoved)
	if _, ok := w.registry.Get(idOf(connection)); !ok {
		t.Error("the connection has ended")
	}
	for range 50 {
		if v, _ := w.kernel.Lookup(w.begin()); v.Address != backendAt(1) {
			t.Fatalf("a new flow went to %s", v.Address)
		}
	}
	w.kernel.end(connection, flow.ByClient, false)
	w.eventually("the backend is forgotten", func() error {
		w.kernel.mu.Lock()
		defer w.kernel.mu.Unlock()
		for _, b := range w.kernel.backends {
			if b.Address == backendAt(0) {
				return errors.New("it is there")
			}
		}
		return nil
	})
}

// Least-connections by choices that were made before, of a service with 17,000 new flows a second that live for a quarter of one: at the
// end no backend has a tenth more, or less, than its share.
func TestLeastConnections(t *testing.T) {
	const backends, flows, inALook, most = 20, 40000, 34, 4000
	w := newQuietWorld(t, newKernel(t))
	w.kernel.Events(w.steer.flows.happened)
	w.apply(web(backends, func(s *lb.Service) { s.Balance = lb.LeastConnections }))
	var live []program.Ref
	rnd := rand.New(rand.NewPCG(1, 2))
	var idle []*pool
	for n := range flows {
		if n%inALook == 0 {
			w.steer.fillOnce(&idle)
		}
		live = append(live, w.begin())
		if len(live) > most {
			i := rnd.IntN(len(live))
			w.kernel.end(live[i], flow.ByClient, false)
			live = slices.Delete(live, i, i+1)
		}
	}
	share := int64(len(live) / backends)
	w.kernel.see(func() {
		for id, b := range w.kernel.backends {
			if n := w.kernel.open[id]; n < share*9/10 || n > share*11/10 {
				t.Errorf("%s has %d flows, the share is %d", b.Address, n, share)
			}
		}
		if w.kernel.tables > flows/100 {
			t.Errorf("%d flows met the table", w.kernel.tables)
		}
	})
}

// The same where nobody is told of connections that last for less than a quarter of a second.
func TestLeastConnectionsUnseen(t *testing.T) {
	const backends, flows = 10, 4000
	w := newQuietWorld(t, newKernel(t)) // it hears nothing
	w.apply(web(backends, func(s *lb.Service) { s.Balance = lb.LeastConnections }))
	for _, v := range w.steer.services {
		for _, b := range v.backends {
			if b.told.ID%2 == 0 { // half of them have more than they should
				w.kernel.see(func() { w.kernel.open[b.told.ID] += flows })
			}
		}
	}
	w.steer.services["web"].weigh()
	w.steer.poolsLocked()[0].stale = true
	var idle []*pool
	got := map[bool]int{}
	for range flows {
		w.steer.fillOnce(&idle)
		v, _ := w.kernel.Lookup(w.begin())
		got[v.Backend%2 == 0]++
	}
	if got[true] > flows/100 {
		t.Errorf("%d of %d went to those that have most", got[true], flows)
	}
}

// The next process goes on with flows, under the same numbers, and takes back what nobody asks for any more.
func TestAdopt(t *testing.T) {
	k := newKernel(t)
	w := newWorld(t, k)
	other := web(1)
	other.Name, other.Frontends = "other", []lb.Frontend{{FrontendKey: lb.FrontendKey{Proto: flow.TCP, Address: netip.MustParseAddrPort("10.96.0.11:80")}}}
	w.apply(web(2), other)
	r := w.begin()
	stray, _ := k.begin(other.Frontends[0].FrontendKey, w.client())
	before, _ := k.Lookup(r)
	w.stop()

	next := newWorld(t, k)
	for _, ref := range []program.Ref{r, stray} {
		if rec, ok := next.registry.Get(idOf(ref)); !ok || rec.View().Path != flow.PathBPF || rec.View().Service == "" {
			t.Fatalf("flow %v is not known", ref)
		}
	}
	next.apply(web(2))
	next.begin()
	k.see(func() {
		if k.flows[r].Backend != before.Backend || k.backends[before.Backend].Address != before.Address {
			t.Errorf("backend %d is %s", before.Backend, k.backends[before.Backend].Address)
		}
		if len(k.flows) != 3 {
			t.Errorf("%d flows", len(k.flows))
		}
	})
	next.eventually("what nobody asks for is taken back", func() (err error) {
		k.see(func() {
			if len(k.frontends) != 1 || len(k.pools) != 1 {
				err = fmt.Errorf("%d frontends, %d pools", len(k.frontends), len(k.pools))
			}
		})
		return err
	})
	k.end(stray, flow.ByClient, false)
	next.ended(stray, flow.ByClient, flow.ReasonClosed)
	next.eventually("the other service is forgotten", func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.services) != 1 || len(k.backends) != 2 {
			return fmt.Errorf("%d services, %d backends", len(k.services), len(k.backends))
		}
		return nil
	})
}

// Old sessions make room for new ones before the limit is met: those with one datagram first.
func TestRoom(t *testing.T) {
	const limit = 100
	w := newQuietWorld(t, newKernel(t))
	w.kernel.Events(w.steer.flows.happened)
	udp := lb.FrontendKey{Proto: flow.UDP, Address: vip.Address}
	w.apply(web(2, func(s *lb.Service) {
		s.Frontends = append(s.Frontends, lb.Frontend{FrontendKey: udp})
		s.Limits.UDPSessions = limit
	}))
	busy, _ := w.kernel.begin(udp, w.client())
	w.kernel.see(func() { v := w.kernel.flows[busy]; v.Counters.PacketsToBackend = 9; w.kernel.flows[busy] = v })
	v := w.steer.services["web"]
	for range 10 * limit {
		w.kernel.begin(udp, w.client())
		w.steer.mu.Lock()
		v.makeRoom()
		w.steer.mu.Unlock()
		if n := w.kernel.Sessions(v.id); n > limit {
			t.Fatalf("%d sessions", n)
		}
	}
	if _, ok := w.kernel.Lookup(busy); !ok {
		t.Error("the busy one has gone")
	}
	if n, records := w.kernel.Sessions(v.id), w.registry.Len(); n != limit*3/4 || records != n {
		t.Errorf("%d sessions, %d records", n, records)
	}
	for _, e := range w.registry.LastEnded()[:1] {
		if e.Reason != flow.ReasonEvicted || e.EndedBy != flow.ByBaton {
			t.Errorf("%+v", e)
		}
	}
}

// A backend to which there is no way takes no flows until there is one; the others have them all.
func TestNoWay(t *testing.T) {
	w := newWorld(t, newKernel(t))
	w.noWay.Store(true)
	w.apply(web(2))
	for range 20 {
		if v, _ := w.kernel.Lookup(w.begin()); v.Address != backendAt(1) {
			t.Fatalf("a flow went to %s", v.Address)
		}
	}
	w.noWay.Store(false)
	w.eventually("the backend has flows again", func() error {
		if v, _ := w.kernel.Lookup(w.begin()); v.Address != backendAt(0) {
			return errors.New("not yet")
		}
		return nil
	})
}

// A service that the program cannot be told of is left to the relay, and steered when it can be.
func TestProgramFull(t *testing.T) {
	k := newKernel(t)
	k.full = true
	w := newWorld(t, k)
	w.apply(web(2))
	if failures := w.store.Failures(); len(failures) > 0 {
		t.Errorf("it failed: %v", failures)
	}
	if _, answer := k.begin(vip, w.client()); answer != program.ToStack {
		t.Errorf("a client met %d", answer)
	}
	k.see(func() { k.full = false })
	w.eventually("it is steered", func() error {
		if r, _ := k.begin(vip, w.client()); r.Born == 0 {
			return errors.New("not yet")
		}
		return nil
	})
}
