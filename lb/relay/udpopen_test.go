package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// A backend that refuses is left; what it has answered before is passed on, and
// nothing is lost but what it was sent.
func TestUDPBackendRefuses(t *testing.T) {
	a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
	b.mute()
	w := newWorld(t, Options{Loops: 1})
	w.serve(udpOf(service("dns", udpVIP, a.addr, b.addr)))
	c := udpClientTo(t, udpVIP)
	for asked(t, c) != "a" { // b is silent
		t.Fatal("the first session is not at the first backend")
	}
	resume := w.pause(0)
	source := a.senders()[0]
	const answers = 70 // more than a batch
	for i := range answers {
		_, _ = a.conn.WriteToUDPAddrPort([]byte(fmt.Sprint("last words ", i)), source)
	}
	a.close()
	const questions = 20
	for i := range questions {
		send(t, c, strings.Repeat("q", 1+i)) // no two go together
	}
	resume()
	for i := range answers {
		if got, err := take(c, patience); err != nil || got != fmt.Sprint("last words ", i) {
			t.Fatalf("answer %d: %q, %v", i, got, err)
		}
	}
	wantCount(t, questions-1, b) // the first one was a's
	v := w.sessions(1)[0].View()
	if v.Backend != b.addr || v.Picked != flow.ByRetry {
		t.Errorf("the session is at %s (%s)", v.Backend, v.Picked)
	}
	svc, _ := w.store.Snapshot().Service("dns")
	for _, p := range svc.Pool {
		if dead := p.Address == a.addr; dead != (p.Load.Failures() > 0) || dead == (p.Load.Flows() > 0) {
			t.Errorf("%s has %d failures and %d flows", p.Address, p.Load.Failures(), p.Load.Flows())
		}
	}
}

// A backend that refused and is back serves its client at once, when there is no
// other: a refusal that waits on the socket costs no datagram.
func TestUDPOnlyBackendComesBack(t *testing.T) {
	a := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 1})
	w.serve(udpOf(service("dns", udpVIP, a.addr)))
	c := udpClientTo(t, udpVIP)
	ask(t, c, a)
	for range 5 {
		a.close()
		resume := w.pause(0)
		for i := range 5 {
			sendAnyway(t, c, strings.Repeat("x", i+1))
		}
		resume()
		failures := func() uint64 {
			svc, _ := w.store.Snapshot().Service("dns")
			return svc.Pool[0].Load.Failures()
		}
		before := failures()
		testnet.Eventually(t, patience, "the refusal is noticed", func() error {
			sendAnyway(t, c, "x")
			if failures() == before {
				return fmt.Errorf("it is not")
			}
			return nil
		})
		a = udpBackendAt(t, "a", a.addr)
		sendAnyway(t, c, "x")
		takeAnyway(t, c, "a x")
	}
	if n := w.registry.Len(); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// sendAnyway sends a datagram whatever the network has said of earlier ones.
func sendAnyway(t testing.TB, c *net.UDPConn, data string) {
	t.Helper()
	for range 100 {
		_, err := c.Write([]byte(data))
		if err == nil {
			return
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("send %q: %v", data, err)
		}
	}
	t.Fatalf("send %q: nothing but refusals", data)
}

// takeAnyway receives until a datagram comes.
func takeAnyway(t testing.TB, c *net.UDPConn, data string) {
	t.Helper()
	for {
		got, err := take(c, patience)
		if got == data {
			return
		}
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("got %q, %v; want %q", got, err, data)
		}
	}
}

// When all refuse the session stays, its client is refused too, and it goes on with
// the first that answers.
func TestUDPAllRefuse(t *testing.T) {
	a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
	a.close()
	b.close()
	w := newWorld(t, Options{Loops: 1})
	w.serve(udpOf(service("dns", udpVIP, a.addr, b.addr)))
	c := udpClientTo(t, udpVIP)
	testnet.Eventually(t, patience, "the client is refused", func() error {
		sendAnyway(t, c, "x")
		if got, err := take(c, 20*time.Millisecond); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("got %q, %v", got, err)
		}
		return nil
	})
	rec := w.sessions(1)[0]
	b = udpBackendAt(t, "b", b.addr)
	testnet.Eventually(t, patience, "the session is at the live backend", func() error {
		sendAnyway(t, c, "x")
		got, err := take(c, 20*time.Millisecond)
		if err == nil && got != "b x" {
			err = fmt.Errorf("got %q", got)
		}
		return err
	})
	if v := rec.View(); v.Backend != b.addr || v.State != flow.Established {
		t.Errorf("the record says %s, %s", v.Backend, v.State)
	}
}

// Why a client gets no session is counted, and said in the record.
func TestUDPNoBackend(t *testing.T) {
	needsNamespace(t)
	a := newUDPBackend(t, "a")
	far := netip.MustParseAddrPort("192.0.2.1:53") // there is no route
	for _, tc := range []struct {
		name    string
		prepare func(*lb.Service, *Options)
		by      flow.By
		reason  flow.Reason
		drop    flow.Drop
	}{
		{"full", func(s *lb.Service, _ *Options) { s.Backends[0].MaxConnections = 1 }, flow.ByBaton, flow.ReasonLimit, flow.DropBackendsFull},
		{"no route", func(s *lb.Service, _ *Options) { s.Backends[0].Address = far }, flow.ByBackend, flow.ReasonDialFailed, flow.DropUnreachable},
		{"no ports", func(_ *lb.Service, o *Options) { o.Source = SourceParams{FirstPort: 40001, LastPort: 40001} }, flow.ByBaton, flow.ReasonLocalResources, flow.DropNoPorts},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := Options{Loops: 1}
			svc := udpOf(service("dns", udpVIP, a.addr))
			tc.prepare(&svc, &o)
			w := newWorld(t, o)
			w.serve(svc)
			first := udpClientTo(t, udpVIP)
			live := 0
			if tc.name != "no route" {
				ask(t, first, a)
				live = 1
			}
			c := udpClientTo(t, udpVIP)
			send(t, c, "x")
			wantEnd(t, w.ended(c.LocalAddr()), tc.by, tc.reason)
			w.wantDrops(tc.drop, 1)
			w.sessions(live)
			if live > 0 {
				ask(t, first, a)
			}
		})
	}
}

// Sessions come from the configured addresses and ports.
func TestUDPSource(t *testing.T) {
	a := newUDPBackend(t, "a")
	from := []netip.Addr{netip.MustParseAddr("127.0.9.1"), netip.MustParseAddr("127.0.9.2")}
	w := newWorld(t, Options{Loops: 1, Source: SourceParams{Addresses: from, FirstPort: 41000, LastPort: 41063}})
	w.serve(udpOf(service("dns", udpVIP, a.addr)))
	for range 40 {
		ask(t, udpClientTo(t, udpVIP), a)
	}
	seen := map[netip.Addr]int{}
	for _, s := range a.senders() {
		seen[s.Addr()]++
		if s.Port() < 41000 || s.Port() > 41063 {
			t.Errorf("a datagram came from %s", s)
		}
	}
	if len(seen) != 2 || seen[from[0]] < 10 || seen[from[1]] < 10 {
		t.Errorf("datagrams came from %v", seen)
	}
}

// A session that moves begins at the address that the way to its new backend
// begins at.
func TestUDPMovesToAnotherNetwork(t *testing.T) {
	needsNamespace(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"192.0.2.1/24", "198.51.100.1/24"} {
		addr, err := netlink.ParseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.AddrDel(lo, addr) })
	}
	a := udpBackendAt(t, "a", netip.MustParseAddrPort("192.0.2.1:0"))
	b := udpBackendAt(t, "b", netip.MustParseAddrPort("198.51.100.1:0"))
	w := newWorld(t, Options{Loops: 1})
	w.serve(udpOf(service("dns", udpVIP, a.addr)))
	c := udpClientTo(t, udpVIP)
	ask(t, c, a)
	w.serve(udpOf(service("dns", udpVIP, b.addr)))
	ask(t, c, b)
	for _, backend := range []*udpBackend{a, b} {
		if from := backend.senders()[0].Addr(); from != backend.addr.Addr() {
			t.Errorf("%s was sent to from %s", backend.addr, from)
		}
	}
}

// A packet filter that forbids sending costs datagrams, and no session.
func TestUDPForbiddenByARule(t *testing.T) {
	needsNamespace(t)
	a := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 1})
	w.serve(udpOf(service("dns", udpVIP, a.addr)))
	c := udpClientTo(t, udpVIP)
	ask(t, c, a)
	_, dst, _ := net.ParseCIDR(a.addr.Addr().String() + "/32")
	for _, action := range []uint8{unreachableRule, prohibitRule, blackholeRule} {
		rule := netlink.NewRule()
		rule.Priority, rule.Dst, rule.Type = 1, dst, action
		rule.Family = netlink.FAMILY_V4
		// The local table comes first, at priority 0: it has to stand behind.
		before := w.drops(flow.DropUnreachable)
		if err := moveLocalTable(); err != nil {
			t.Fatal(err)
		}
		if err := netlink.RuleAdd(rule); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			send(t, c, "x")
		}
		w.wantDrops(flow.DropUnreachable, before+3)
		if err := netlink.RuleDel(rule); err != nil {
			t.Fatal(err)
		}
		ask(t, c, a)
	}
	w.sessions(1)
}

// Types of rules (linux/fib_rules.h).
const (
	blackholeRule   = 6
	unreachableRule = 7
	prohibitRule    = 8
)

// moveLocalTable makes room for rules before the local table, for good.
func moveLocalTable() error {
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Table = netlink.FAMILY_V4, 100, 255
	_ = netlink.RuleAdd(rule)
	rule.Priority = 0
	_ = netlink.RuleDel(rule)
	return nil
}

// Ten thousand sessions come and go; nothing is left of them.
func TestUDPManySessions(t *testing.T) {
	const n, atOnce = 10_000, 500
	a := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 2})
	svc := udpOf(service("dns", udpVIP, a.addr))
	w.serve(svc)
	for range n / atOnce {
		var clients []*net.UDPConn
		for range atOnce {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(udpVIP))
			if err != nil {
				t.Fatal(err)
			}
			ask(t, c, a)
			clients = append(clients, c)
		}
		for _, rec := range w.sessions(atOnce) {
			rec.End(flow.ByBaton, flow.ReasonAdminReset)
		}
		w.sessions(0)
		for _, c := range clients {
			c.Close()
		}
	}
	a.close()
	w.leaks()
}
