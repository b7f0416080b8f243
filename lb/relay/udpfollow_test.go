package relay

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// Not one datagram goes to a backend that has gone, from the moment of the
// snapshot on: before anything was programmed.
func TestUDPFollowsTheSnapshot(t *testing.T) {
	a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
	w := newWorld(t, Options{Loops: 2})
	hold := make(chan struct{})
	held := make(chan struct{}, 100)
	w.store.Register(store.Backends, "hold", programmer(func(context.Context, store.Change) []store.Failure {
		held <- struct{}{}
		<-hold
		return nil
	}))
	if err := w.source.Replace([]lb.Service{udpOf(service("dns", udpVIP, a.addr))}); err != nil {
		t.Fatal(err)
	}
	<-held
	hold <- struct{}{}
	for _, policy := range []lb.RemovedPolicy{lb.Keep, lb.Drain, lb.Reset} {
		from, to := a, b
		if policy == lb.Drain {
			from, to = b, a
		}
		c := udpClientTo(t, udpVIP)
		for asked := false; !asked; { // until the frontend is there
			_, _ = c.Write([]byte("x"))
			_, err := take(c, 50*time.Millisecond)
			asked = err == nil
		}
		ask(t, c, from)
		svc := udpOf(service("dns", udpVIP, to.addr))
		svc.OnBackendRemoved = policy
		if err := w.source.Replace([]lb.Service{svc}); err != nil {
			t.Fatal(err)
		}
		<-held
		before := from.count()
		ask(t, c, to)
		ask(t, c, to)
		hold <- struct{}{}
		if err := w.store.Programmed(t.Context(), w.store.Snapshot().Revision); err != nil {
			t.Fatal(err)
		}
		ask(t, c, to)
		if n := from.count(); n != before {
			t.Errorf("%s: %d datagrams have come to the old backend", policy, n-before)
		}
	}
	close(hold)
}

// Silent sessions end or move too, and are no longer counted for what is gone.
func TestUDPSilentSessionsFollow(t *testing.T) {
	a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
	w := newWorld(t, Options{Loops: 2})
	svc := udpOf(service("dns", udpVIP, a.addr))
	svc.OnBackendRemoved = lb.Reset // does not concern UDP
	w.serve(svc)
	const n = 3 * followChunk
	for range n {
		ask(t, udpClientTo(t, udpVIP), a)
	}
	svc.Backends = udpOf(service("", udpVIP, b.addr)).Backends
	w.serve(svc)
	for _, rec := range w.sessions(n) {
		if v := rec.View(); v.Backend != b.addr || v.Picked != flow.ByRetry {
			t.Fatalf("a session is at %s (%s)", v.Backend, v.Picked)
		}
	}
	published, _ := w.store.Snapshot().Service("dns")
	if got := published.Pool[0].Load.Flows(); got != n {
		t.Errorf("the backend counts %d flows", got)
	}
	w.serve(udpOf(service("dns", udpVIP)))
	w.sessions(0)
	for _, v := range w.registry.LastEnded() {
		wantEnd(t, v, flow.ByBaton, flow.ReasonBackendRemoved)
	}
}

// A frontend that is another service's now takes no session along.
func TestUDPFrontendChangesItsService(t *testing.T) {
	a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
	w := newWorld(t, Options{Loops: 1})
	second := netip.MustParseAddrPort("127.0.1.1:54")
	one, two := udpOf(service("one", udpVIP, a.addr)), udpOf(service("two", second, b.addr))
	w.serve(one, two)
	c := udpClientTo(t, udpVIP)
	ask(t, c, a)
	one.Frontends, two.Frontends = two.Frontends, one.Frontends
	w.serve(one, two)
	v := w.ended(c.LocalAddr())
	wantEnd(t, v, flow.ByBaton, flow.ReasonServiceRemoved)
	if v.Service != "one" {
		t.Errorf("it was a flow of %s", v.Service)
	}
	ask(t, c, b)
	if v := w.sessions(1)[0].View(); v.Service != "two" {
		t.Errorf("it is a flow of %s", v.Service)
	}
}

// A backend that has failed loses its sessions while others have not.
func TestUDPLeavesASickBackend(t *testing.T) {
	a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
	w := newWorld(t, Options{Loops: 2})
	w.serve(udpOf(service("dns", udpVIP, a.addr, b.addr)))
	var clients []*net.UDPConn
	for range 10 {
		clients = append(clients, udpClientTo(t, udpVIP))
		asked(t, clients[len(clients)-1])
	}
	all := func(at *udpBackend) {
		t.Helper()
		for _, rec := range w.sessions(len(clients)) {
			if got := rec.View().Backend; got != at.addr {
				t.Fatalf("a session is at %s, not at %s", got, at.name)
			}
		}
		for _, c := range clients {
			ask(t, c, at)
		}
	}
	w.setHealth("dns", a, true)
	all(b)
	w.setHealth("dns", b, true) // there is nothing better
	all(b)
	w.setHealth("dns", a, false)
	all(a)
	w.setHealth("dns", b, false)
	all(a)
}

// A draining backend keeps its sessions, whatever its health; one that is down
// loses them.
func TestUDPDrainKeepsSessions(t *testing.T) {
	a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
	w := newWorld(t, Options{Loops: 1})
	svc := udpOf(service("dns", udpVIP, a.addr))
	w.serve(svc)
	c := udpClientTo(t, udpVIP)
	ask(t, c, a)
	svc.Backends = []lb.Backend{{Address: a.addr, Weight: 1, State: lb.StateDrain}, {Address: b.addr, Weight: 1}}
	w.serve(svc)
	ask(t, c, a)
	ask(t, udpClientTo(t, udpVIP), b)
	w.setHealth("dns", a, true)
	ask(t, c, a)
	svc.Backends = []lb.Backend{{Address: a.addr, Weight: 1, State: lb.StateDown}, {Address: b.addr, Weight: 1}}
	w.serve(svc)
	ask(t, c, b)
}

// Sessions take on new settings: how long they live, and what goes before their
// datagrams.
func TestUDPNewSettings(t *testing.T) {
	b := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 1})
	svc := udpOf(service("dns", udpVIP, b.addr))
	w.serve(svc)
	c := udpClientTo(t, udpVIP)
	ask(t, c, b)
	svc.ClientAddress = lb.ProxyV2
	w.serve(svc)
	send(t, c, "x")
	if got, err := take(c, patience); err != nil || len(got) != 2+28+1 {
		t.Errorf("with a header: %q, %v", got, err)
	}
	svc.ClientAddress = lb.Masked
	svc.Frontends = slices.Clone(svc.Frontends)
	svc.Frontends[0].ClientAddress = lb.ProxyV2 // comes before the service's
	w.serve(svc)
	send(t, c, "x")
	if got, err := take(c, patience); err != nil || len(got) != 2+28+1 {
		t.Errorf("with a header: %q, %v", got, err)
	}
	svc.Frontends = slices.Clone(svc.Frontends)
	svc.Frontends[0].ClientAddress = ""
	svc.Timeouts.UDPIdle = 200 * time.Millisecond
	w.serve(svc)
	wantEnd(t, w.ended(c.LocalAddr()), flow.ByBaton, flow.ReasonIdle)
	svc.Timeouts.UDPIdle = time.Hour
	w.serve(svc)
	ask(t, c, b)
	if n := len(b.senders()); n != 2 {
		t.Errorf("the backend saw %d sources", n)
	}
}

// Sessions of one datagram live half as long; each further one, either way, begins
// the time anew.
func TestUDPLife(t *testing.T) {
	const idle = 600 * time.Millisecond
	b := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 1})
	svc := udpOf(service("dns", udpVIP, b.addr))
	svc.Timeouts.UDPIdle = idle
	w.serve(svc)
	for _, tc := range []struct {
		datagrams int
		life      time.Duration
	}{{1, idle / 2}, {2, idle}} {
		c := udpClientTo(t, udpVIP)
		for range tc.datagrams {
			ask(t, c, b)
		}
		v := w.ended(c.LocalAddr())
		wantEnd(t, v, flow.ByBaton, flow.ReasonIdle)
		if took := v.EndedAt.Sub(v.LastSeenAt); took < tc.life-10*time.Millisecond || took > tc.life+idle {
			t.Errorf("after %d datagrams it lived %v", tc.datagrams, took)
		}
	}
	c := udpClientTo(t, udpVIP)
	ask(t, c, b)
	ask(t, c, b)
	source := b.senders()
	for range 8 { // answers alone keep it
		time.Sleep(idle / 4)
		for _, to := range source {
			_, _ = b.conn.WriteToUDPAddrPort([]byte("news"), to)
		}
	}
	if n := w.registry.Len(); n != 1 {
		t.Errorf("%d sessions are live while answers come", n)
	}
}

// Many sessions that move hold their loop for a moment only.
func BenchmarkUDPFollow(b *testing.B) {
	backend := newUDPBackend(b, "a")
	other := newUDPBackend(b, "b")
	w := newWorld(b, Options{Loops: 1})
	svc := [2]lb.Service{udpOf(service("dns", udpVIP, backend.addr)), udpOf(service("dns", udpVIP, other.addr))}
	w.serve(svc[0])
	const n = 1000
	for range n {
		c := udpClientTo(b, udpVIP)
		asked(b, c)
	}
	i := 0
	for b.Loop() {
		i++
		w.serve(svc[i%2])
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/session")
}

// A session ends when its client may no longer come: a silent one too, by whichever of
// the lists.
func TestUDPSessionsOfDeniedClientsEnd(t *testing.T) {
	b := newUDPBackend(t, "b")
	w := newWorld(t, Options{Loops: 2})
	here, elsewhere := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for name, change := range map[string]func(*lb.Service){
		"source ranges": func(s *lb.Service) { s.Frontends[0].AllowSources = elsewhere },
		"allow":         func(s *lb.Service) { s.Allow = elsewhere },
		"deny":          func(s *lb.Service) { s.Deny = here },
	} {
		svc := udpOf(service("dns", udpVIP, b.addr))
		svc.Frontends[0].AllowSources = here
		w.serve(svc)
		c := udpClientTo(t, udpVIP)
		ask(t, c, b)
		denied := udpOf(service("dns", udpVIP, b.addr))
		change(&denied)
		w.serve(denied)
		wantEnd(t, w.ended(c.LocalAddr()), flow.ByBaton, flow.ReasonDenied)
		dropped, got := w.drops(flow.DropDenied), b.count()
		send(t, c, "x")
		w.wantDrops(flow.DropDenied, dropped+1)
		if n := b.count(); n != got {
			t.Errorf("%s: %d datagrams have come to the backend", name, n-got)
		}
	}
}
