package relay

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// A limit holds whichever loops the sessions are on, each client is served, and
// the service that has no limit does not notice.
func TestUDPSessionLimit(t *testing.T) {
	for _, loops := range []int{1, 2, 5} {
		for _, limit := range []int{1, 2, 20} {
			t.Run(fmt.Sprintf("%d loops, %d sessions", loops, limit), func(t *testing.T) {
				b := newUDPBackend(t, "a")
				w := newWorld(t, Options{Loops: loops})
				svc, other := udpOf(service("dns", udpVIP, b.addr)), udpOf(service("other", netip.MustParseAddrPort("127.0.1.1:54"), b.addr))
				svc.Limits.UDPSessions = limit
				w.serve(svc, other)
				quiet := udpClientTo(t, other.Frontends[0].Address)
				ask(t, quiet, b)
				for range 60 {
					c := udpClientTo(t, udpVIP)
					ask(t, c, b)
					if n := w.registry.Len() - 1; n > limit+loops-1 {
						t.Fatalf("%d sessions are live", n)
					}
				}
				w.sessions(limit + 1)
				for _, v := range w.registry.LastEnded() {
					wantEnd(t, v, flow.ByBaton, flow.ReasonEvicted)
					if v.Service != "dns" {
						t.Errorf("a session of %s has made room", v.Service)
					}
				}
				ask(t, quiet, b)
			})
		}
	}
}

// Sessions of one datagram make room first, the oldest of them; then those that
// have stood still longest.
func TestUDPOldestMakesRoom(t *testing.T) {
	b := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 1})
	svc := udpOf(service("dns", udpVIP, b.addr))
	svc.Limits.UDPSessions = 4
	w.serve(svc)
	var c []*net.UDPConn
	say := func(i int) {
		for i >= len(c) {
			c = append(c, udpClientTo(t, udpVIP))
		}
		ask(t, c[i], b)
	}
	for _, step := range []struct {
		say  []int
		gone int // who makes room for the last of them
	}{
		{[]int{0, 1, 0, 1, 2, 3, 4}, 2},
		{[]int{5}, 3},
		{[]int{0, 4, 5, 6}, 1}, // all have said two things
		{[]int{7}, 6},
		{[]int{7, 4, 8}, 0},
	} {
		for _, i := range step.say {
			say(i)
		}
		wantEnd(t, w.ended(c[step.gone].LocalAddr()), flow.ByBaton, flow.ReasonEvicted)
	}
	if n := len(w.registry.LastEnded()); n != 5 {
		t.Errorf("%d sessions have made room", n)
	}
}

// A session whose client sends again, in the batch in which another one needs room,
// is not the oldest any more: its answer comes.
func TestUDPOldestHasJustSent(t *testing.T) {
	b := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 1})
	svc := udpOf(service("dns", udpVIP, b.addr))
	svc.Limits.UDPSessions = 2
	w.serve(svc)
	first, second := udpClientTo(t, udpVIP), udpClientTo(t, udpVIP)
	ask(t, first, b)
	ask(t, second, b)
	resume := w.pause(0)
	send(t, first, "again")
	third := udpClientTo(t, udpVIP)
	send(t, third, "x")
	resume()
	if got, err := take(first, patience); err != nil || got != "a again" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := take(third, patience); err != nil || got != "a x" {
		t.Errorf("got %q, %v", got, err)
	}
	wantEnd(t, w.ended(second.LocalAddr()), flow.ByBaton, flow.ReasonEvicted)
}

// Sessions of one datagram keep a quarter of the places: with fewer, each of them
// would make room for the next before its answer has come.
func TestUDPOneShotsKeepAQuarter(t *testing.T) {
	b := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 1})
	svc := udpOf(service("dns", udpVIP, b.addr))
	svc.Limits.UDPSessions = 20
	w.serve(svc)
	for range 20 {
		c := udpClientTo(t, udpVIP)
		ask(t, c, b)
		ask(t, c, b)
	}
	resume := w.pause(0)
	var clients []*net.UDPConn
	for range 5 {
		c := udpClientTo(t, udpVIP)
		send(t, c, "x")
		clients = append(clients, c)
	}
	resume()
	for i, c := range clients {
		if got, err := take(c, patience); err != nil || got != "a x" {
			t.Errorf("client %d: %q, %v", i, got, err)
		}
	}
	for range 40 {
		ask(t, udpClientTo(t, udpVIP), b)
	}
	used := 0
	for _, rec := range w.sessions(20) {
		if rec.View().PacketsToBackend > 1 {
			used++
		}
	}
	if used != 15 && used != 16 {
		t.Errorf("%d of 20 sessions are of clients that have said more", used)
	}
}

// A limit that becomes lower is reached as new sessions come.
func TestUDPLoweredLimit(t *testing.T) {
	b := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 1})
	svc := udpOf(service("dns", udpVIP, b.addr))
	w.serve(svc)
	for range 50 {
		ask(t, udpClientTo(t, udpVIP), b)
	}
	svc.Limits.UDPSessions = 10
	w.serve(svc)
	for range 45 {
		ask(t, udpClientTo(t, udpVIP), b)
	}
	w.sessions(10)
}

// UDP and TCP leave each other descriptors, whoever comes first.
func TestUDPSharesDescriptors(t *testing.T) {
	const limit = 200
	u := newUDPBackend(t, "a")
	tb, _ := backend(t, testnet.Echo)
	for _, udpFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("UDP first: %v", udpFirst), func(t *testing.T) {
			w := newWorld(t, Options{Loops: 2, Descriptors: descriptors(t) + limit})
			one, two := udpOf(service("one", udpVIP, u.addr)), udpOf(service("two", netip.MustParseAddrPort("127.0.1.1:54"), u.addr))
			w.serve(one, two, service("web", vip, tb))
			ask(t, udpClientTo(t, udpVIP), u)
			tcp := func() (served int) {
				for range limit {
					c := dial(t, vip)
					_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
					if testnet.Ask(c, "x") != nil {
						return served
					}
					served++
				}
				return served
			}
			udp := func() {
				for range limit {
					for _, svc := range []lb.Service{one, two} {
						ask(t, udpClientTo(t, svc.Frontends[0].Address), u)
					}
				}
			}
			budget := w.relay.budget
			if udpFirst {
				udp()
				if n := tcp(); n < int(budget.limit)/10 {
					t.Errorf("beside UDP %d connections are served with %d descriptors", n, budget.limit)
				}
			} else {
				tcp()
				udp()
			}
			if n := budget.udp.Load(); n < budget.limit/8 || n > budget.limit*3/4+2 {
				t.Errorf("UDP has %d of %d descriptors", n, budget.limit)
			}
			perService := map[string]int{}
			for _, rec := range w.registry.Records() {
				perService[rec.Service()]++
			}
			if a, b := perService["one"], perService["two"]; a < (a+b)/4 || b < (a+b)/4 {
				t.Errorf("one UDP service has %d sessions, the other %d", a, b)
			}
			if n := w.drops(flow.DropNoDescriptors); udpFirst && n > 3 {
				t.Errorf("%d were dropped for lack of descriptors: %v", n, w.registry.DropCounts())
			}
		})
	}
}

// The limits of a service hold for UDP too.
func TestUDPLimits(t *testing.T) {
	b := newUDPBackend(t, "a")
	for _, tc := range []struct {
		name   string
		limits lb.Limits
		why    flow.Drop
	}{
		{"clients", lb.Limits{PerClient: 3}, flow.DropLimitClient},
		{"rate", lb.Limits{NewPerSecond: 3}, flow.DropLimitRate},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Options{Loops: 1})
			svc := udpOf(service("dns", udpVIP, b.addr))
			svc.Limits = tc.limits
			w.serve(svc)
			before := b.count()
			resume := w.pause(0) // all come at one time
			for range 8 {
				send(t, udpClientTo(t, udpVIP), "x")
			}
			resume()
			w.wantDrops(tc.why, 5)
			wantCount(t, before+3, b)
			w.sessions(3)
			// One that ends makes room.
			w.registry.Records()[0].End(flow.ByBaton, flow.ReasonAdminReset)
			w.sessions(2)
			if tc.limits.PerClient > 0 {
				ask(t, udpClientTo(t, udpVIP), b)
			}
		})
	}
}

// Who may not use a frontend is dropped and counted.
func TestUDPDenied(t *testing.T) {
	b := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 1})
	svc := udpOf(service("dns", udpVIP, b.addr))
	svc.Deny = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	w.serve(svc)
	c := udpClientTo(t, udpVIP)
	for i := range 3 {
		send(t, c, "x")
		w.wantDrops(flow.DropDenied, uint64(i+1))
	}
	svc.Deny = nil
	w.serve(svc)
	ask(t, c, b)
}

// Lists and groups are what they should be after whatever order of events.
func TestUDPGroups(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	w := newWorld(t, Options{Loops: 1})
	loop := w.relay.workers[0]
	_ = loop.loop.Call(func() {
		u := &loop.udp
		live := make(map[*udpSession]bool)
		l := &udpListener{}
		socket := &udpSocket{w: loop, l: l, sessions: make(map[udpKey]*udpSession)}
		for i := range 3_000 {
			if rng.IntN(2) == 0 || len(live) == 0 {
				name := fmt.Sprint("svc", rng.IntN(7))
				s := &udpSession{u: socket, fe: frontendOf(name), fd: -1}
				s.peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)
				s.client, s.local = s.peer, udpVIP
				u.admit(s, w.relay.udpLimits.of(name))
				live[s] = true
				continue
			}
			for s := range live {
				switch rng.IntN(3) {
				case 0:
					s.packets[toBackend].Add(1)
					s.group.touch(s)
				default:
					delete(live, s)
					u.forget(s)
					l.sessions.Add(-1)
					loop.loop.Load().Add(-1)
				}
				break
			}
			checkGroups(t, u, live)
		}
		for s := range live {
			u.forget(s)
			loop.loop.Load().Add(-1)
		}
		if len(u.groups) != 0 || u.bySize.first() != nil || len(socket.sessions) != 0 {
			t.Error("something is left")
		}
	})
}

func checkGroups(t *testing.T, u *udpWorker, live map[*udpSession]bool) {
	t.Helper()
	n, most := 0, 0
	for name, g := range u.groups {
		in := len(g.oneShot.appendTo(nil)) + len(g.used.appendTo(nil))
		if in != g.n() || in == 0 || g.service != name || u.bySize[g.index] != g {
			t.Fatalf("%s has %d sessions and counts %d", name, in, g.n())
		}
		for _, s := range g.oneShot.appendTo(nil) {
			if !s.oneShot() || !live[s] {
				t.Fatal("a session is in the wrong list")
			}
		}
		n, most = n+in, max(most, in)
	}
	if n != len(live) || len(u.bySize) != len(u.groups) || most > 0 && u.bySize.first().n() != most {
		t.Fatalf("%d sessions of %d are listed, the largest group is not %d", n, len(live), most)
	}
}
