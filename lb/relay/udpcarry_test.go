package relay

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/proxyproto"
)

// carriedService is a UDP service whose sessions leave with their first datagram.
func carriedService(backends ...netip.AddrPort) lb.Service {
	s := udpOf(service("dns", udpVIP, backends...))
	s.Offload.AfterBytes, s.Offload.AfterAge = 0, 0
	return s
}

// carrier waits for the n-th way beside a socket.
func (w *world) carrier(o *fakeOffloader, n int) (c *fakeCarrier) {
	w.t.Helper()
	testnet.Eventually(w.t, patience, fmt.Sprintf("there is carrier %d", n), func() error {
		all, asked := o.carries()
		if len(all) < n {
			return fmt.Errorf("there are %d, of %d asked for", len(all), asked)
		}
		c = all[n-1]
		return nil
	})
	return c
}

// becomes waits until a record is as check wants it.
func (w *world) becomes(rec *flow.Record, what string, check func(v flow.View) bool) {
	w.t.Helper()
	testnet.Eventually(w.t, patience, what, func() error {
		if v := rec.View(); !check(v) {
			return fmt.Errorf("it is %+v", v)
		}
		return nil
	})
}

// A session is given to a carrier when its policy says so, and not before.
func TestUDPCarryPolicy(t *testing.T) {
	proxied := string(proxyproto.Append(nil, proxyproto.V2, proxyproto.Datagram, believedClient, believedFrontend))
	for _, tc := range []struct {
		name   string
		change func(*lb.Service)
		before string // of each datagram
		big    int    // how many datagrams of 100 bytes are sent until it is carried; 0 = never
		why    flow.NotOffloaded
	}{
		{"always", func(s *lb.Service) { s.Offload.Mode = lb.OffloadAlways }, "", 1, ""},
		{"at once", func(s *lb.Service) { s.Offload.AfterBytes, s.Offload.AfterAge = 0, 0 }, "", 1, ""},
		{"big enough", func(s *lb.Service) { s.Offload.AfterBytes, s.Offload.AfterAge = 1000, 0 }, "", 5, ""},
		{"too small", func(s *lb.Service) { s.Offload.AfterBytes, s.Offload.AfterAge = 1e6, 0 }, "", 0, flow.NotOffloadedWaiting},
		{"too young", func(s *lb.Service) { s.Offload.AfterBytes, s.Offload.AfterAge = 0, time.Hour }, "", 0, flow.NotOffloadedWaiting},
		{"never", func(s *lb.Service) { s.Offload.Mode = lb.OffloadNever }, "", 0, flow.NotOffloadedNever},
		{"a header to the backend", func(s *lb.Service) {
			s.Offload.AfterBytes, s.Offload.AfterAge, s.ClientAddress = 0, 0, lb.ProxyV2
		}, "", 0, flow.NotOffloadedHeader},
		{"a header from the client", func(s *lb.Service) {
			s.Offload.AfterBytes, s.Offload.AfterAge, s.AcceptProxy = 0, 0, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		}, proxied, 0, flow.NotOffloadedHeader},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newFakeOffloader()
			w := newWorld(t, Options{Loops: 1, Offloader: o})
			b := newUDPBackend(t, "a")
			s := udpOf(service("dns", udpVIP, b.addr))
			tc.change(&s)
			if nb := (*lb.NotBuiltError)(nil); errors.As(s.Validate(), &nb) {
				t.Skip(nb)
			}
			w.serve(s)
			c := udpClientTo(t, udpVIP)
			const data = 100
			for i := range 20 {
				if all, _ := o.carries(); len(all) > 0 && i < tc.big {
					t.Fatalf("carried after %d datagrams", i)
				}
				send(t, c, tc.before+strings.Repeat("x", data))
				if _, err := take(c, patience); err != nil {
					t.Fatal(err)
				}
			}
			rec := w.sessions(1)[0]
			if _, asked := o.carries(); tc.big == 0 && asked > 0 {
				t.Errorf("a way was asked for %d times", asked)
			}
			if tc.big == 0 {
				if v := rec.View(); v.NotOffloaded != tc.why || v.Path != flow.PathUserspace || v.State != flow.Established {
					t.Errorf("%+v", v)
				}
				return
			}
			carrier := w.carrier(o, 1).session
			if carrier.Record != rec || carrier.Client.String() != c.LocalAddr().String() || carrier.Frontend != udpVIP ||
				carrier.Backend != b.addr || carrier.Source != b.senders()[0] || carrier.Policy != s.Offload || carrier.Timeouts != s.Timeouts {
				t.Errorf("asked for %+v", carrier)
			}
			if v := rec.View(); v.Path != flow.PathBPF || v.State != flow.Offloaded || v.NotOffloaded != "" || v.HandedOffAt.IsZero() {
				t.Errorf("%+v", v)
			}
			if all, asked := o.carries(); len(all) != 1 || asked != 1 {
				t.Errorf("%d carriers, asked for %d times", len(all), asked)
			}
		})
	}
}

// Datagrams that do not take the way beside the socket, as fragments, go through it
// as ever; the record has both, before and after, and each path its own bytes.
func TestUDPCarriedCounters(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Loops: 1, Offloader: o})
	b := newUDPBackend(t, "a")
	s := carriedService(b.addr)
	w.serve(s)
	c := udpClientTo(t, udpVIP)
	ask(t, c, b) // 1 byte there, 3 back
	carrier := w.carrier(o, 1)
	rec := w.sessions(1)[0]
	seen := time.Now().Add(time.Second).Round(0)
	carrier.carry(flow.Counters{BytesToBackend: 1000, BytesToClient: 3000, PacketsToBackend: 10, PacketsToClient: 20, LastSeen: seen})
	big := strings.Repeat("x", 20_000) // in fragments on any real network
	send(t, c, big)
	if got, err := take(c, patience); err != nil || got != "a "+big {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
	const there, back = 1 + 1000 + 20_000, 3 + 3000 + 20_002
	w.becomes(rec, "everything is counted", func(v flow.View) bool {
		return v.BytesToBackend == there && v.BytesToClient == back && v.PacketsToBackend == 12 && v.PacketsToClient == 22 &&
			v.Path == flow.PathBPF && v.LastSeenAt.Equal(seen)
	})
	s.Offload.Mode = lb.OffloadNever
	w.serve(s)
	w.becomes(rec, "it is in userspace again", func(v flow.View) bool {
		return v.Path == flow.PathUserspace && v.State == flow.Established && v.NotOffloaded == flow.NotOffloadedNever && v.HandedOffAt.IsZero()
	})
	carrier.carry(flow.Counters{BytesToBackend: 7}) // what a withdrawn one says counts no more
	ask(t, c, b)
	w.becomes(rec, "the counters go on", func(v flow.View) bool {
		return v.BytesToBackend == there+1 && v.BytesToClient == back+3 && v.PacketsToBackend == 13 && v.PacketsToClient == 23
	})
	bytes := w.registry.Stats().Bytes
	user, kernel := flow.BytesKey{Service: "dns", Direction: flow.ToClient, Path: flow.PathUserspace}, flow.BytesKey{Service: "dns", Direction: flow.ToClient, Path: flow.PathBPF}
	if own := bytes[user]; bytes[user]+bytes[kernel] != back+3 || own < 3 || own > 6 {
		t.Errorf("%d bytes of userspace, %d of the carrier", bytes[user], bytes[kernel])
	}
	if carrier.open() {
		t.Error("it is not withdrawn")
	}
	rec.End(flow.ByBaton, flow.ReasonAdminReset)
	if v := w.ended(c.LocalAddr()); v.Path != flow.PathUserspace || v.BytesToBackend != there+1 {
		t.Errorf("%+v", v)
	}
}

// A wildcard frontend's sessions are carried at the address that was asked.
func TestUDPCarryWildcard(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Loops: 1, Offloader: o})
	b := newUDPBackend(t, "a")
	s := carriedService(b.addr)
	s.Frontends[0].Address = netip.AddrPortFrom(netip.IPv4Unspecified(), 5300)
	w.serve(s)
	asked := netip.MustParseAddrPort("127.0.4.4:5300")
	ask(t, udpClientTo(t, asked), b)
	if c := w.carrier(o, 1); c.session.Frontend != asked {
		t.Errorf("carried at %s", c.session.Frontend)
	}
}

// Whatever leads a session to another backend closes its way first, and opens one to
// the new backend with the next datagram.
func TestUDPCarriedMoves(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(w *world, s lb.Service, b *udpBackend, c *net.UDPConn)
	}{
		{"removed", func(w *world, s lb.Service, b *udpBackend, _ *net.UDPConn) {
			s.Backends = s.Backends[1:]
			w.serve(s)
		}},
		{"down", func(w *world, s lb.Service, b *udpBackend, _ *net.UDPConn) {
			s.Backends = slices.Clone(s.Backends)
			s.Backends[0].State = lb.StateDown
			w.serve(s)
		}},
		{"unhealthy", func(w *world, s lb.Service, b *udpBackend, _ *net.UDPConn) { w.setHealth("dns", b, true) }},
		{"refuses", func(w *world, s lb.Service, b *udpBackend, c *net.UDPConn) {
			b.close()
			send(w.t, c, "what its socket hears of is about its carrier's datagrams as well")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newFakeOffloader()
			w := newWorld(t, Options{Loops: 1, Offloader: o})
			a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
			s := carriedService(a.addr, b.addr)
			w.serve(s)
			c := udpClientTo(t, udpVIP)
			ask(t, c, a)
			first := w.carrier(o, 1)
			first.carry(flow.Counters{BytesToBackend: 500, PacketsToBackend: 5, LastSeen: time.Now()})
			rec := w.sessions(1)[0]
			tc.do(w, s, a, c)
			w.becomes(rec, "it has moved", func(v flow.View) bool { return v.Backend == b.addr && v.Picked == flow.ByRetry })
			testnet.Eventually(t, patience, "the way is closed", func() error {
				if first.open() {
					return errors.New("it is not")
				}
				return nil
			})
			ask(t, c, b)
			second := w.carrier(o, 2)
			if second.session.Backend != b.addr || second.session.Source == first.session.Source && second.session.Source != b.senders()[0] {
				t.Errorf("carried to %s from %s", second.session.Backend, second.session.Source)
			}
			second.carry(flow.Counters{BytesToBackend: 40, PacketsToBackend: 4, LastSeen: time.Now()})
			w.becomes(rec, "it is carried again", func(v flow.View) bool {
				return v.Path == flow.PathBPF && v.State == flow.Offloaded && v.BytesToBackend >= 500+40+2
			})
		})
	}
}

// A backend that answers by the carrier is well: one lost datagram does not move the
// session, whatever its socket has heard before.
func TestUDPCarriedAnswersAreHeard(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Loops: 1, Offloader: o})
	b := newUDPBackend(t, "a")
	w.serve(carriedService(b.addr))
	c := udpClientTo(t, udpVIP)
	ask(t, c, b)
	carrier := w.carrier(o, 1)
	worker := w.relay.workers[0]
	var session *udpSession
	_ = worker.loop.Call(func() { session = worker.udp.all()[0] })
	load := w.registry.Acquire("dns", b.addr)
	defer w.registry.Release(load)
	for _, answer := range []bool{false, true} {
		_ = worker.loop.Call(func() { session.doubt = true })
		w.sessions(1)[0].DialFailed(flow.DialUnreachable)
		if answer {
			carrier.carry(flow.Counters{PacketsToClient: 1, BytesToClient: 10, LastSeen: time.Now()})
		}
		var doubt bool
		_ = worker.loop.Call(func() { session.look(); doubt = session.doubt })
		if failures := load.Streak().Failures; doubt == answer || (failures > 0) == answer {
			t.Errorf("answered %v: in doubt %v, %d failures", answer, doubt, failures)
		}
	}
}

// Why a session is not carried stands in its record; it is tried again if that may
// pass, each time later, and anew when the policy changes.
func TestUDPCarryRefused(t *testing.T) {
	for _, tc := range []struct {
		why   flow.NotOffloaded
		again bool
	}{
		{flow.NotOffloadedTableFull, true},
		{flow.NotOffloadedTaken, true},
		{flow.NotOffloadedUnavailable, false},
		{flow.NotOffloadedHostLocal, false},
	} {
		t.Run(string(tc.why), func(t *testing.T) {
			o := newFakeOffloader()
			o.keep(tc.why)
			w := newWorld(t, Options{Loops: 1, Offloader: o})
			b := newUDPBackend(t, "a")
			s := carriedService(b.addr)
			w.serve(s)
			c := udpClientTo(t, udpVIP)
			for range 5 {
				ask(t, c, b)
			}
			rec := w.sessions(1)[0]
			if _, asked := o.carries(); asked != 1 || rec.View().NotOffloaded != tc.why {
				t.Fatalf("asked %d times: %+v", asked, rec.View())
			}
			worker := w.relay.workers[0]
			var session *udpSession
			var wait time.Duration
			pass := func() { // the time until the next attempt
				_ = worker.loop.Call(func() {
					session = worker.udp.all()[0]
					if at := session.carrying.tryAt; at != math.MaxInt64 {
						wait = time.Duration(at - worker.loop.Nano())
						session.carrying.tryAt = 0
					}
				})
			}
			for range 9 {
				before := wait
				pass()
				if tc.again != (wait > before) && wait < maxCarryPause*9/10 {
					t.Errorf("it waits for %s after %s", wait, before)
				}
				ask(t, c, b)
			}
			if _, asked := o.carries(); asked > 1 != tc.again {
				t.Errorf("asked %d times", asked)
			}
			o.keep("")
			s.Offload.AfterBytes++
			w.serve(s)
			ask(t, c, b)
			w.carrier(o, 1)
		})
	}
}

// Whoever asks for it gets a session carried before its time.
func TestUDPHandoffOnRequest(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Loops: 2, Offloader: o})
	b := newUDPBackend(t, "a")
	s := udpOf(service("dns", udpVIP, b.addr))
	never := udpOf(service("never", netip.MustParseAddrPort("127.0.1.1:54"), b.addr))
	never.Offload.Mode = lb.OffloadNever
	w.serve(s, never)
	ids := make(map[string]flow.ID)
	for _, to := range []netip.AddrPort{udpVIP, never.Frontends[0].Address} {
		ask(t, udpClientTo(t, to), b)
	}
	for _, rec := range w.sessions(2) {
		ids[rec.Service()] = rec.ID()
	}
	want := func(id flow.ID, result flow.HandoffResult, why flow.NotOffloaded) {
		t.Helper()
		if r, y, err := w.relay.Handoff(id); r != result || y != why || err != nil {
			t.Errorf("%s: %s %q %v, want %s %q", id, r, y, err, result, why)
		}
	}
	want(77, flow.HandoffEnded, "")
	want(ids["never"], flow.HandoffRefused, flow.NotOffloadedNever)
	o.keep(flow.NotOffloadedFailed)
	want(ids["dns"], flow.HandoffFailed, flow.NotOffloadedFailed)
	o.keep("")
	want(ids["dns"], flow.HandoffDone, "")
	want(ids["dns"], flow.HandoffDone, "")
	all, _ := o.carries()
	if len(all) != 1 || all[0].session.Policy.AfterBytes != 0 || all[0].session.Policy.AfterAge != 0 {
		t.Errorf("%d carriers", len(all))
	}
}

// Without an offloader a session says at once that none will come.
func TestUDPNoCarrier(t *testing.T) {
	w := newWorld(t, Options{Loops: 1})
	b := newUDPBackend(t, "a")
	w.serve(udpOf(service("dns", udpVIP, b.addr)))
	ask(t, udpClientTo(t, udpVIP), b)
	if v := w.sessions(1)[0].View(); v.NotOffloaded != flow.NotOffloadedUnavailable {
		t.Errorf("%+v", v)
	}
}
