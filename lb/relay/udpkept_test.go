package relay

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
)

// dies ends the process of a world, as far as its records go: the carriers go on.
func (w *world) dies() {
	w.t.Helper()
	if err := w.relay.Close(); err != nil {
		w.t.Fatal(err)
	}
	for _, rec := range w.registry.Records() {
		rec.Finish(flow.ByBaton, flow.ReasonShutdown)
	}
	w.close()
}

// kept is a session of a carrier as the next process hears of it.
func kept(c *fakeCarrier) handoff.Kept {
	v := c.session.Record.View()
	k := handoff.Kept{
		ID: v.ID, StartedAt: v.StartedAt, HandedOffAt: v.HandedOffAt, Picked: v.Picked, Service: v.Service, Base: c.base,
		Carrier: c, Session: c.session,
	}
	k.Record, k.Policy, k.Timeouts = nil, lb.Offload{}, lb.Timeouts{}
	return k
}

// carriedOnce is a session that a process has left to its carrier.
func carriedOnce(t testing.TB, dir string, s lb.Service, b *udpBackend) (c *net.UDPConn, k handoff.Kept, before flow.View) {
	t.Helper()
	o := newFakeOffloader()
	// Not the client's address, which would be taken for one that was shown.
	source := SourceParams{Addresses: []netip.Addr{netip.MustParseAddr("127.0.5.5")}}
	w := newWorld(t, Options{Loops: 1, Offloader: o, StateDir: dir, Source: source})
	w.serve(s)
	c = udpClientTo(t, udpVIP)
	ask(t, c, b)
	carrier := w.carrier(o, 1)
	carrier.carry(flow.Counters{BytesToBackend: 1000, PacketsToBackend: 10, BytesToClient: 2000, PacketsToClient: 20, LastSeen: time.Now()})
	ask(t, c, b) // its socket is there too
	rec := w.sessions(1)[0]
	w.becomes(rec, "the answer is counted", func(v flow.View) bool { return v.BytesToClient == 2006 })
	k, before = kept(carrier), rec.View()
	w.dies()
	if !carrier.open() {
		t.Fatal("the way was closed with the process")
	}
	b.forget()
	return c, k, before
}

// Sessions that the kernel has carried while there was no process are there again,
// with their names, their counters and their source ports, and none of their
// datagrams makes a new one, whichever socket it comes to.
func TestUDPKept(t *testing.T) {
	for _, tc := range []struct {
		loops   int
		crashed bool // there is no file
		late    bool // it is told of them when it serves already
	}{
		{1, false, false}, {1, true, false}, {5, false, false}, {5, true, true}, {1, true, true},
	} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			b := newUDPBackend(t, "a")
			s := carriedService(b.addr)
			dir := t.TempDir()
			c, k, before := carriedOnce(t, dir, s, b)
			carrier := k.Carrier.(*fakeCarrier)
			carrier.carry(flow.Counters{BytesToBackend: 5, PacketsToBackend: 1, LastSeen: time.Now()}) // in between
			if tc.crashed {
				dir = t.TempDir()
			}
			o := newFakeOffloader()
			options := Options{Loops: tc.loops, Offloader: o, StateDir: dir}
			if !tc.late {
				options.Kept = []handoff.Kept{k}
			}
			w := newWorld(t, options)
			w.serve(s)
			w.source.Synced() // not before: a source that has delivered nothing has no use for the session
			if tc.late {
				w.relay.Keep([]handoff.Kept{k})
			}
			rec := w.sessions(1)[0]
			now := rec.View()
			if now.ID != before.ID || !now.StartedAt.Equal(before.StartedAt) || now.State != flow.Offloaded || now.Path != flow.PathBPF ||
				!now.HandedOffAt.Equal(before.HandedOffAt) || now.Backend != b.addr || now.Picked != before.Picked || now.Client != before.Client {
				t.Errorf("it was %+v\nand is %+v", before, now)
			}
			own := uint64(0) // datagrams that only the file knows of
			if tc.crashed {
				own = 1
			}
			if now.BytesToBackend != before.BytesToBackend+5-own || now.PacketsToBackend != before.PacketsToBackend+1-own ||
				now.BytesToClient != before.BytesToClient-6*own || now.PacketsToClient != before.PacketsToClient-2*own {
				t.Errorf("it had carried %+v\nand has %+v", before, now)
			}
			if n := w.registry.Acquire("dns", b.addr).Flows(); n != 1 {
				t.Errorf("its backend has %d flows", n)
			}
			for range 5 { // as a fragmented one comes
				ask(t, c, b)
			}
			if from := b.senders(); len(from) != 1 || from[0] != k.Source {
				t.Errorf("the backend saw %v, before %s", from, k.Source)
			}
			w.sessions(1)
			w.becomes(rec, "all is counted", func(v flow.View) bool { return v.BytesToClient == now.BytesToClient+15 })
			if all, asked := o.carries(); len(all) != 0 || asked != 0 || !carrier.open() {
				t.Errorf("it was carried anew, or not at all: asked %d times, open %v", asked, carrier.open())
			}
			rec.End(flow.ByBaton, flow.ReasonAdminReset)
			if v := w.ended(c.LocalAddr()); v.Path != flow.PathBPF || carrier.open() {
				t.Errorf("open %v, %+v", carrier.open(), v)
			}
			ask(t, c, b) // and begins anew
			if w.sessions(1)[0] == rec {
				t.Error("it has not ended")
			}
		})
	}
}

// A session that cannot be as it was is withdrawn, and goes on with its client's
// next datagram, under its name.
func TestUDPKeptIsWithdrawn(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*lb.Service)
		source SourceParams
		taken  bool // its source port is
		goesOn bool // to another backend, from another port, or as it was
	}{
		{"backend gone", func(s *lb.Service) { s.Backends = s.Backends[1:] }, SourceParams{}, false, true},
		{"backend down", func(s *lb.Service) { s.Backends[0].State = lb.StateDown }, SourceParams{}, false, true},
		{"port taken", func(*lb.Service) {}, SourceParams{}, true, true},
		{"port not ours any more", func(*lb.Service) {}, SourceParams{FirstPort: 20000, LastPort: 20010}, false, true},
		{"address not ours any more", func(*lb.Service) {}, SourceParams{Addresses: []netip.Addr{netip.MustParseAddr("127.0.9.1")}}, false, true},
		{"denied", func(s *lb.Service) { s.Deny = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }, SourceParams{}, false, false},
		{"behind a proxy now", func(s *lb.Service) { s.AcceptProxy = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }, SourceParams{}, false, false},
		{"frontend gone", func(s *lb.Service) { s.Frontends[0].Address = netip.MustParseAddrPort("127.0.1.1:54") }, SourceParams{}, false, false},
		{"another service's now", func(s *lb.Service) { s.Name = "other" }, SourceParams{}, false, false},
		{"no backend takes new sessions", func(s *lb.Service) { s.Backends = s.Backends[:1]; s.Backends[0].State = lb.StateDrain }, SourceParams{}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
			c, k, before := carriedOnce(t, t.TempDir(), carriedService(a.addr), a)
			carrier := k.Carrier.(*fakeCarrier)
			if tc.taken {
				fd, _, err := udpTo(b.addr, k.Source)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(fd)
			}
			s := carriedService(a.addr, b.addr)
			tc.change(&s)
			w := newWorld(t, Options{Loops: 2, Offloader: newFakeOffloader(), Source: tc.source, Kept: []handoff.Kept{k}})
			w.serve(s)
			if !carrier.open() && tc.name != "port taken" {
				t.Error("withdrawn before every source has delivered")
			}
			w.source.Synced()
			s.Timeouts.Idle++
			w.serve(s)
			if carrier.open() {
				t.Error("it is not withdrawn")
			}
			w.sessions(0)
			if !tc.goesOn {
				return
			}
			asked(t, c)
			v := w.sessions(1)[0].View()
			if v.ID != before.ID || !v.StartedAt.Equal(before.StartedAt) || v.BytesToBackend < 1000 {
				t.Errorf("it was %+v\nand is %+v", before, v)
			}
		})
	}
}

// A kept session that has stood still for too long ends, its carrier with it; one
// whose policy does not want it carried any more goes on in userspace.
func TestUDPKeptIsJudged(t *testing.T) {
	b := newUDPBackend(t, "a")
	c, k, _ := carriedOnce(t, t.TempDir(), carriedService(b.addr), b)
	carrier := k.Carrier.(*fakeCarrier)
	carrier.counters.LastSeen = time.Now().Add(-time.Hour)
	w := newWorld(t, Options{Loops: 1, Offloader: newFakeOffloader(), Kept: []handoff.Kept{k}})
	w.serve(carriedService(b.addr))
	wantEnd(t, w.ended(c.LocalAddr()), flow.ByBaton, flow.ReasonIdle)
	if carrier.open() {
		t.Error("it is not withdrawn")
	}
	w.close()

	c, k, before := carriedOnce(t, t.TempDir(), carriedService(b.addr), b)
	w = newWorld(t, Options{Loops: 1, Offloader: newFakeOffloader(), Kept: []handoff.Kept{k}})
	s := carriedService(b.addr)
	s.Offload.Mode = lb.OffloadNever
	w.serve(s)
	v := w.sessions(1)[0].View()
	if v.ID != before.ID || v.Path != flow.PathUserspace || v.NotOffloaded != flow.NotOffloadedNever || k.Carrier.(*fakeCarrier).open() {
		t.Errorf("%+v", v)
	}
	ask(t, c, b)
	if from := b.senders(); len(from) != 1 || from[0] != k.Source {
		t.Errorf("the backend saw %v, before %s", from, k.Source)
	}
}

// Of a session that was carried when its process stopped, and that no carrier has
// now, the next one knows that it had been big enough.
func TestUDPCarriedIsSaved(t *testing.T) {
	b := newUDPBackend(t, "a")
	dir := t.TempDir()
	c, _, before := carriedOnce(t, dir, carriedService(b.addr), b)
	if list := readSaved(t, dir); len(list) != 1 || !list[0].Carried || list[0].BytesToBackend != before.BytesToBackend {
		t.Fatalf("the file has %+v", list)
	}
	o := newFakeOffloader()
	w := newWorld(t, Options{Loops: 1, Offloader: o, StateDir: dir})
	s := carriedService(b.addr)
	s.Offload.AfterBytes, s.Offload.AfterAge = math.MaxInt32, time.Hour
	w.serve(s)
	ask(t, c, b)
	if got := w.carrier(o, 1).session; got.Record.ID() != before.ID {
		t.Errorf("carried: %+v", got)
	}
	ask(t, udpClientTo(t, udpVIP), b) // somebody new has to wait
	w.sessions(2)
	if all, _ := o.carries(); len(all) != 1 {
		t.Errorf("%d carriers", len(all))
	}
}

// The next process takes a session's socket and its carrier together.
func TestHandoverOfCarried(t *testing.T) {
	for _, known := range []bool{true, false} { // to the next one, by its carrier
		dir := t.TempDir()
		b := newUDPBackend(t, "b")
		s := carriedService(b.addr)
		o := newFakeOffloader()
		old := newWorld(t, Options{Loops: 2, StateDir: dir, Offloader: o})
		old.serve(s)
		c := udpClientTo(t, udpVIP)
		ask(t, c, b)
		carrier := old.carrier(o, 1)
		carrier.carry(flow.Counters{BytesToBackend: 1000, PacketsToBackend: 10, LastSeen: time.Now()})
		before := old.sessions(1)[0].View()
		k := kept(carrier)

		h, in := begun(t, old.relay)
		again := newFakeOffloader()
		next := newWorld(t, Options{StateDir: dir, Inherit: in, Offloader: again})
		next.source.Synced()
		next.serve(s)
		all := sessions(t, h)
		if known {
			next.relay.Keep([]handoff.Kept{k})
		}
		h.Release()
		if err := next.relay.Begin(all); err != nil {
			t.Error(err)
		}
		now := next.sessions(1)[0].View()
		if now.ID != before.ID || (now.State == flow.Offloaded) != known || now.BytesToBackend != before.BytesToBackend || !carrier.open() {
			t.Errorf("it was %+v\nand is %+v", before, now)
		}
		ask(t, c, b)
		if !known {
			next.carrier(again, 1)
		}
		if from := b.senders(); len(from) != 1 {
			t.Errorf("the backend saw %v", from)
		}
		next.sessions(1)
		old.dies()
		next.close()
		c.Close()
		b.close()
	}
}

// A client that has closed its port ends its session, on whichever loop that is.
func TestUDPStrayEndsWithItsClient(t *testing.T) {
	b := newUDPBackend(t, "a")
	c, k, _ := carriedOnce(t, t.TempDir(), carriedService(b.addr), b)
	carrier := k.Carrier.(*fakeCarrier)
	w := newWorld(t, Options{Loops: 4, Offloader: newFakeOffloader(), Kept: []handoff.Kept{k}})
	w.serve(carriedService(b.addr))
	w.sessions(1)
	c.Close()
	_, _ = b.conn.WriteToUDPAddrPort([]byte("who is there"), k.Source)
	testnet.Eventually(t, patience, "the session has ended", func() error {
		if carrier.open() {
			return fmt.Errorf("%d are live", w.registry.Len())
		}
		return nil
	})
	wantEnd(t, w.ended(c.LocalAddr()), flow.ByClient, flow.ReasonNetworkError)
	if n := w.relay.strays.n.Load(); n != 0 {
		t.Errorf("%d strays are left", n)
	}
}
