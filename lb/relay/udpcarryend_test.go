package relay

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// However a session ends, its way is closed, and the record says which path it was
// on in the end.
func TestUDPCarriedEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(w *world, s lb.Service, rec *flow.Record, c *net.UDPConn)
		by   flow.By
		why  flow.Reason
	}{
		{"reset", func(w *world, _ lb.Service, rec *flow.Record, _ *net.UDPConn) {
			rec.End(flow.ByBaton, flow.ReasonAdminReset)
		}, flow.ByBaton, flow.ReasonAdminReset},
		{"service removed", func(w *world, s lb.Service, _ *flow.Record, _ *net.UDPConn) { w.serve() }, flow.ByBaton, flow.ReasonServiceRemoved},
		{"frontend removed", func(w *world, s lb.Service, _ *flow.Record, _ *net.UDPConn) {
			s.Frontends = slices.Clone(s.Frontends)
			s.Frontends[0].Address = netip.AddrPortFrom(s.Frontends[0].Address.Addr(), 54)
			w.serve(s)
		}, flow.ByBaton, flow.ReasonServiceRemoved},
		{"last backend removed", func(w *world, s lb.Service, _ *flow.Record, _ *net.UDPConn) {
			s.Backends = slices.Clone(s.Backends)
			s.Backends[0].State = lb.StateDown
			w.serve(s)
		}, flow.ByBaton, flow.ReasonBackendRemoved},
		{"evicted", func(w *world, s lb.Service, _ *flow.Record, _ *net.UDPConn) {
			s.Limits.UDPSessions = 1
			w.serve(s)
			send(w.t, udpClientTo(w.t, udpVIP), "x")
		}, flow.ByBaton, flow.ReasonEvicted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newFakeOffloader()
			w := newWorld(t, Options{Loops: 1, Offloader: o})
			b := newUDPBackend(t, "a")
			s := carriedService(b.addr)
			w.serve(s)
			c := udpClientTo(t, udpVIP)
			ask(t, c, b)
			carrier := w.carrier(o, 1)
			carrier.carry(flow.Counters{BytesToBackend: 500, PacketsToBackend: 5})
			tc.do(w, s, w.sessions(1)[0], c)
			v := w.ended(c.LocalAddr())
			wantEnd(t, v, tc.by, tc.why)
			if v.Path != flow.PathBPF || v.BytesToBackend != 501 || carrier.open() {
				t.Errorf("carried on: %v; %+v", carrier.open(), v)
			}
		})
	}
}

// A drained backend keeps its sessions, and their ways.
func TestUDPDrainKeepsTheWay(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Loops: 1, Offloader: o})
	a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
	s := carriedService(a.addr, b.addr)
	w.serve(s)
	c := udpClientTo(t, udpVIP)
	ask(t, c, a)
	carrier := w.carrier(o, 1)
	s.Backends = slices.Clone(s.Backends)
	s.Backends[0].State = lb.StateDrain
	w.serve(s)
	ask(t, c, a)
	if !carrier.open() || w.sessions(1)[0].View().Path != flow.PathBPF {
		t.Error("the way is closed")
	}
}

// A session lives as long as its carrier carries something.
func TestUDPCarriedIsNotIdle(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Loops: 1, Offloader: o})
	b := newUDPBackend(t, "a")
	s := carriedService(b.addr)
	s.Timeouts.UDPIdle = 200 * time.Millisecond
	w.serve(s)
	c := udpClientTo(t, udpVIP)
	ask(t, c, b)
	carrier, began := w.carrier(o, 1), time.Now()
	testnet.Eventually(t, patience, "many times its idle time is over", func() error {
		carrier.carry(flow.Counters{PacketsToBackend: 1, BytesToBackend: 1, LastSeen: time.Now()})
		if w.registry.Len() != 1 {
			t.Fatalf("it has ended: %+v", w.registry.LastEnded())
		}
		if d := time.Since(began); d < 5*s.Timeouts.UDPIdle {
			return fmt.Errorf("%s are", d)
		}
		return nil
	})
	v := w.ended(c.LocalAddr())
	wantEnd(t, v, flow.ByBaton, flow.ReasonIdle)
	if idle := v.EndedAt.Sub(v.LastSeenAt); idle < s.Timeouts.UDPIdle || carrier.open() {
		t.Errorf("it ended %s after the last datagram; carried on: %v", idle, carrier.open())
	}
}

// One datagram by the socket and more beside it are not one.
func TestUDPCarriedIsNotOneShot(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Loops: 1, Offloader: o})
	b := newUDPBackend(t, "a")
	w.serve(carriedService(b.addr))
	ask(t, udpClientTo(t, udpVIP), b)
	carrier := w.carrier(o, 1)
	worker := w.relay.workers[0]
	for _, want := range []bool{true, false} {
		var oneShot bool
		_ = worker.loop.Call(func() { oneShot = worker.udp.all()[0].oneShot() })
		if oneShot != want {
			t.Errorf("one shot: %v", oneShot)
		}
		carrier.carry(flow.Counters{PacketsToBackend: 1, LastSeen: time.Now()})
	}
}

// Who makes room is the session that is idle, not the one whose socket is.
func TestUDPEvictsTheIdlest(t *testing.T) {
	o := newFakeOffloader()
	w := newWorld(t, Options{Loops: 1, Offloader: o})
	b := newUDPBackend(t, "a")
	s := carriedService(b.addr)
	s.Limits.UDPSessions = 3
	w.serve(s)
	var clients []*net.UDPConn
	for i := range 3 {
		c := udpClientTo(t, udpVIP)
		ask(t, c, b)
		ask(t, c, b) // none is a one-shot
		clients = append(clients, c)
		w.carrier(o, i+1)
	}
	for _, i := range []int{1, 3} { // the first and the last one are busy
		w.carrier(o, i).carry(flow.Counters{PacketsToBackend: 1, LastSeen: time.Now()})
	}
	ask(t, udpClientTo(t, udpVIP), b)
	wantEnd(t, w.ended(clients[1].LocalAddr()), flow.ByBaton, flow.ReasonEvicted)
	for i, open := range []bool{true, false, true} {
		if w.carrier(o, i+1).open() != open {
			t.Errorf("carrier %d is open: %v", i+1, !open)
		}
	}
}
