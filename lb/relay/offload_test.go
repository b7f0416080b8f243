package relay

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
)

// remotes is a backend that tells where its clients come from, and echoes.
func remotes(t testing.TB) (netip.AddrPort, <-chan netip.AddrPort) {
	t.Helper()
	c := make(chan netip.AddrPort, 100)
	addr, _ := backend(t, func(conn net.Conn) {
		c <- conn.RemoteAddr().(*net.TCPAddr).AddrPort()
		testnet.Echo(conn)
	})
	return addr, c
}

// wantReleased waits until a lease has been released once, for a reason.
func wantReleased(t testing.TB, l *fakeLease, why flow.Reason) {
	t.Helper()
	testnet.Eventually(t, patience, "the lease is released", func() error {
		if _, released := l.fate(); len(released) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	if _, released := l.fate(); !slices.Equal(released, []flow.Reason{why}) {
		t.Errorf("released for %v, want %v once", released, why)
	}
}

// The offloader is asked for every backend before it is dialled, its local
// address is the one used, and it is offered the flow once that is established.
func TestLease(t *testing.T) {
	local := netip.MustParseAddrPort("127.0.3.1:50001")
	o := newFakeOffloader(local)
	w := newWorld(t, Options{Offloader: o})
	live, from := remotes(t)
	dead := nobody(t)
	s := service("web", vip, dead, live)
	s.Backends[1].Priority = 1 // the dead one first
	s.Offload.AfterBytes = 1234
	w.serve(s)
	c := dial(t, vip)
	p := receive(t, o.offers)
	if v := p.Record().View(); v.State != flow.Established || v.Backend != live || v.NotOffloaded != "" {
		t.Errorf("offered: %+v", v)
	}
	if got := receive(t, from); got != local {
		t.Errorf("connected from %s, want %s", got, local)
	}
	leases := o.all()
	if len(leases) != 2 || leases[0].request.Backend != dead || leases[1].request.Backend != live {
		t.Fatalf("%d leases", len(leases))
	}
	for _, l := range leases {
		r := l.request
		if r.Record != p.Record() || r.Client.String() != c.LocalAddr().String() || r.Frontend != vip || r.ClientFD <= 0 {
			t.Errorf("asked for %+v", r)
		}
		if r.Policy != s.Offload || r.Timeouts != s.Timeouts || r.Transparent.IsValid() {
			t.Errorf("asked for %+v", r)
		}
	}
	wantReleased(t, leases[0], flow.ReasonDialFailed)
	if offered, released := leases[1].fate(); offered != 1 || len(released) != 0 {
		t.Errorf("offered %d times, released %v", offered, released)
	}
	c.Close()
	w.ended(c.LocalAddr())
	wantReleased(t, leases[1], flow.ReasonClosed)
	if offered, _ := leases[0].fate(); offered != 0 {
		t.Error("a flow that was not established was offered")
	}
	if _, ok := p.Stop(); ok {
		t.Error("a flow that has ended could be stopped")
	}
}

// A local address that is in use, or in use towards this backend, means the
// next one of the lease; when there is none left, the flow goes without one.
func TestLeaseNext(t *testing.T) {
	inUse := listenAt(t, "127.0.3.1:0") // EADDRINUSE
	connected := netip.MustParseAddrPort("127.0.3.1:50003")
	free := netip.MustParseAddrPort("127.0.3.1:50004")
	o := newFakeOffloader(inUse, connected, free)
	w := newWorld(t, Options{Offloader: o, Source: SourceParams{Addresses: []netip.Addr{netip.MustParseAddr("127.0.3.2")}}})
	addr, from := remotes(t)
	fd, err := dialTCP(DialParams{Local: connected}, addr) // EADDRNOTAVAIL
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	receive(t, from)
	w.serve(service("web", vip, addr))
	dial(t, vip)
	if got := receive(t, from); got != free {
		t.Errorf("connected from %s, want %s", got, free)
	}
	p := receive(t, o.offers)
	c := dial(t, vip)
	if got := receive(t, from); got.Addr() != netip.MustParseAddr("127.0.3.2") {
		t.Errorf("connected from %s, want one that is configured", got)
	}
	wantReleased(t, o.all()[1], flow.ReasonDialFailed)
	for _, rec := range w.registry.Records() {
		v := rec.View()
		if own := rec == p.Record(); own != (v.NotOffloaded == "") || !own && v.NotOffloaded != flow.NotOffloadedNoPort {
			t.Errorf("%+v", v)
		}
	}
	if err := testnet.Ask(c, "without a lease"); err != nil {
		t.Error(err)
	}
	if n := w.registry.Acquire("web", addr).Failures(); n != 0 || len(w.registry.DialFailures()) != 0 {
		t.Errorf("the backend has %d failures; %v", n, w.registry.DialFailures())
	}
}

// A lease that leaves everything to the relay gets what is configured.
func TestLeaseWithoutAnAddress(t *testing.T) {
	source := netip.MustParseAddr("127.0.3.3")
	w := newWorld(t, Options{Offloader: newFakeOffloader(), Source: SourceParams{Addresses: []netip.Addr{source}}})
	addr, from := remotes(t)
	w.serve(service("web", vip, addr))
	dial(t, vip)
	if got := receive(t, from); got.Addr() != source {
		t.Errorf("connected from %s, want %s", got, source)
	}
}

// A flow that ends while its backend is being dialled gives its lease back.
func TestLeaseOfADialThatIsGivenUp(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o})
	s := service("web", vip, fullBacklog(t))
	s.Timeouts.Connect = time.Hour
	w.serve(s)
	dial(t, vip)
	rec := w.record(flow.Dialing)
	testnet.Eventually(t, patience, "the dial is under way", func() error {
		if len(o.all()) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	rec.End(flow.ByBaton, flow.ReasonAdminReset)
	wantReleased(t, o.all()[0], flow.ReasonAdminReset)
}

// Why there is no lease stands in the record.
func TestNoLease(t *testing.T) {
	addr, _ := backend(t, testnet.Echo)
	for name, tt := range map[string]struct {
		offloader handoff.Offloader
		policy    lb.Offload
		want      flow.NotOffloaded
	}{
		"none":      {nil, lb.Offload{Mode: lb.OffloadAuto}, flow.NotOffloadedUnavailable},
		"never":     {nil, lb.Offload{Mode: lb.OffloadNever}, flow.NotOffloadedNever},
		"flowtable": {nil, lb.Offload{Mode: lb.OffloadAuto, Path: lb.OffloadPathFlowtable}, flow.NotOffloadedTerminated},
		"refused":   {&fakeOffloader{refuse: flow.NotOffloadedNever}, lb.Offload{}, flow.NotOffloadedNever},
	} {
		if tt.offloader == nil {
			tt.offloader = handoff.None
		}
		if _, why := tt.offloader.Prepare(handoff.Request{Backend: addr, Policy: tt.policy}); why != tt.want {
			t.Errorf("%s: %q, want %q", name, why, tt.want)
		}
	}
	w := newWorld(t, Options{Offloader: &fakeOffloader{refuse: flow.NotOffloadedNever}})
	w.serve(service("web", vip, addr))
	dial(t, vip)
	if v := w.record(flow.Established).View(); v.NotOffloaded != flow.NotOffloadedNever {
		t.Errorf("%+v", v)
	}
}

// After HandedOff the relay has forgotten both sockets, without a FIN or RST:
// somebody else goes on with them. The record lives on, its counters continue,
// and its end is the new path's business.
func TestHandedOff(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, addr))
	c := dial(t, vip)
	if err := testnet.Ask(c, "in userspace"); err != nil {
		t.Fatal(err)
	}
	p := receive(t, o.offers)
	s, ok := p.Stop()
	if !ok || len(s.ToBackend)+len(s.ToClient) != 0 {
		t.Fatalf("stop: %+v, %v", s, ok)
	}
	path := newFakePath()
	p.HandedOff(flow.PathBPF, path)
	p.HandedOff(flow.PathBPF, path) // and all of these do nothing any more
	p.Resume([]byte("x"), []byte("y"))
	if _, ok := p.Stop(); ok {
		t.Error("a flow that was handed over was stopped")
	}
	if n := w.relay.Flows(); n != 0 {
		t.Errorf("the relay still has %d flows", n)
	}
	if n := w.relay.budget.used.Load(); n != 1 {
		t.Errorf("%d descriptors are still the relay's, want that of its listener", n)
	}
	asked := make(chan error, 1)
	go func() { asked <- testnet.Ask(c, "in the kernel") }()
	path.carry(t, s.ClientFD, s.BackendFD, &path.counters.BytesToBackend)
	path.carry(t, s.BackendFD, s.ClientFD, &path.counters.BytesToClient)
	if err := receive(t, asked); err != nil {
		t.Error(err)
	}
	before, after := uint64(len("in userspace\n")), uint64(len("in the kernel\n"))
	v := p.Record().View()
	if v.Path != flow.PathBPF || v.State != flow.Offloaded || v.HandedOffAt.IsZero() || v.BytesToBackend != before+after || v.BytesToClient != before+after {
		t.Errorf("the record: %+v", v)
	}
	if n := w.registry.Acquire("web", addr).Flows(); n != 1 {
		t.Errorf("the backend has %d flows, want 1", n)
	}
	p.Record().End(flow.ByBaton, flow.ReasonAdminReset)
	end := receive(t, path.ends)
	if end != (endCall{flow.ByBaton, flow.ReasonAdminReset}) {
		t.Errorf("asked to end: %+v", end)
	}
	closeAll(s.ClientFD, s.BackendFD)
	p.Record().Finish(end.by, end.why)
	wantEnd(t, w.ended(c.LocalAddr()), flow.ByBaton, flow.ReasonAdminReset)
	if _, released := o.all()[0].fate(); len(released) != 0 {
		t.Errorf("the lease was released for %v", released)
	}
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Somebody who looked up the path of a flow just before it was handed over still
// ends the flow.
func TestEndMeetsHandover(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Offloader: o})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, addr))
	dial(t, vip)
	p := receive(t, o.offers)
	s, _ := p.Stop()
	path := newFakePath()
	p.HandedOff(flow.PathBPF, path)
	p.(pair).f.End(flow.ByBaton, flow.ReasonAdminReset) // what the record would have called
	if end := receive(t, path.ends); end.why != flow.ReasonAdminReset {
		t.Errorf("asked to end: %+v", end)
	}
	closeAll(s.ClientFD, s.BackendFD)
	p.Record().Finish(flow.ByBaton, flow.ReasonAdminReset)
}
