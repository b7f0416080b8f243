package relay

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// step is one thing that happens to the limits of a service: a connection comes
// or goes (leave).
type step struct {
	after  time.Duration
	client string
	leave  bool
	want   flow.Drop // "" = admitted
}

func TestLimits(t *testing.T) {
	const none flow.Drop = ""
	for name, tt := range map[string]struct {
		max   lb.Limits
		steps []step
	}{
		"none": {lb.Limits{}, []step{{0, "a", false, none}, {0, "a", false, none}, {0, "b", false, none}}},
		"connections": {lb.Limits{Connections: 2}, []step{
			{0, "a", false, none}, {0, "b", false, none}, {0, "c", false, flow.DropLimit},
			{0, "a", true, none}, {0, "c", false, none}, {0, "a", false, flow.DropLimit},
		}},
		"per client": {lb.Limits{PerClient: 2}, []step{
			{0, "a", false, none}, {0, "a", false, none}, {0, "a", false, flow.DropLimitClient}, {0, "b", false, none},
			{0, "a", true, none}, {0, "a", false, none}, {0, "a", false, flow.DropLimitClient},
		}},
		"rate": {lb.Limits{NewPerSecond: 2}, []step{
			{0, "a", false, none}, {0, "b", false, none}, {0, "c", false, flow.DropLimitRate},
			{400 * time.Millisecond, "c", false, flow.DropLimitRate}, {100 * time.Millisecond, "c", false, none},
			{10 * time.Second, "a", false, none}, {0, "a", false, none}, {0, "a", false, flow.DropLimitRate},
		}},
		"what is refused costs no rate": {lb.Limits{NewPerSecond: 2, PerClient: 1}, []step{
			{0, "a", false, none}, {0, "a", false, flow.DropLimitClient}, {0, "a", false, flow.DropLimitClient}, {0, "b", false, none},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var l limits
			addrs := map[string]netip.Addr{
				"a": netip.MustParseAddr("192.0.2.1"), "b": netip.MustParseAddr("192.0.2.2"), "c": netip.MustParseAddr("2001:db8::1"),
			}
			now, open := time.Unix(1000, 0), 0
			for i, s := range tt.steps {
				now = now.Add(s.after)
				if s.leave {
					l.leave(addrs[s.client])
					open--
					continue
				}
				why, ok := l.admit(now, addrs[s.client], tt.max)
				if why != s.want || ok != (s.want == none) {
					t.Errorf("step %d: %q, %v, want %q", i, why, ok, s.want)
				}
				if ok {
					open++
				}
			}
			if l.open != open {
				t.Errorf("%d are counted, want %d", l.open, open)
			}
		})
	}
}

// A limit that changes meets the connections that are open; one of 0 is none.
func TestLimitsThatChange(t *testing.T) {
	var l limits
	a, now := netip.MustParseAddr("192.0.2.1"), time.Unix(1000, 0)
	for i, tt := range []struct {
		max  lb.Limits
		want flow.Drop
	}{
		{lb.Limits{Connections: 1}, ""},
		{lb.Limits{Connections: 1}, flow.DropLimit},
		{lb.Limits{Connections: 2}, ""},
		{lb.Limits{PerClient: 2}, flow.DropLimitClient},
		{lb.Limits{NewPerSecond: 1}, ""},
		{lb.Limits{NewPerSecond: 1}, flow.DropLimitRate},
		{lb.Limits{}, ""},
	} {
		if why, _ := l.admit(now, a, tt.max); why != tt.want {
			t.Errorf("step %d: %q, want %q", i, why, tt.want)
		}
	}
	for range 4 {
		l.leave(a)
	}
	if !l.idle() || len(l.perClient) != 0 {
		t.Errorf("when all have left: %d open, clients %v", l.open, l.perClient)
	}
	if l.rate != nil && l.rate.Limit() != rate.Limit(1) {
		t.Errorf("the rate is %v", l.rate.Limit())
	}
}

// The counts of a service live as long as it does, and as its last connection.
func TestLimitTable(t *testing.T) {
	var table limitTable
	known := []string{"a", "b", "c"}
	is := func(name string) bool { return slices.Contains(known, name) }
	client := netip.MustParseAddr("192.0.2.1")
	for _, name := range known {
		table.of(name).admit(time.Unix(1, 0), client, lb.Limits{})
	}
	b := table.of("b")
	table.of("a").leave(client)
	known = []string{"c"}
	table.forget([]string{"a", "b", "x"}, is)
	if _, ok := table.m.Load("a"); ok {
		t.Error("a is gone, has no connections, and is still there")
	}
	if table.of("b") != b {
		t.Error("b has a connection and was forgotten")
	}
	known = []string{"b", "c"} // back, with its connection
	table.forget([]string{"b"}, is)
	b.leave(client)
	table.forget(nil, is)
	if table.of("b") != b {
		t.Error("b is back and was forgotten")
	}
	known = nil
	table.forget([]string{"b", "c"}, is)
	if _, ok := table.m.Load("b"); ok || len(table.gone) != 1 {
		t.Errorf("b is still there; waiting for %v", table.gone)
	}
}

// What is over a limit is reset at once, in a record and a counter; when there
// is room again the next is served.
func TestOverLimit(t *testing.T) {
	w := newWorld(t, Options{Loops: 2})
	addr, _ := backend(t, testnet.Echo)
	s := service("web", vip, addr)
	s.Limits.Connections = 2
	w.serve(s)
	first, second := dial(t, vip), dial(t, vip)
	if err := testnet.Ask(first, "1"); err != nil {
		t.Fatal(err)
	}
	if err := testnet.Ask(second, "2"); err != nil {
		t.Fatal(err)
	}
	wantReset(t, vip)
	w.wantEnded(flow.ByBaton, flow.ReasonLimit)
	if n := w.registry.DropCounts()[flow.DropLimit]; n != 1 {
		t.Errorf("%d drops, want 1", n)
	}
	addrOf := first.LocalAddr()
	first.Close()
	w.ended(addrOf)
	if err := testnet.Ask(dial(t, vip), "3"); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// Backends at their maxConnections are full for this flow and not broken.
func TestBackendsFull(t *testing.T) {
	w := newWorld(t, Options{})
	addr, _ := backend(t, testnet.Echo)
	s := service("web", vip, addr)
	s.Backends[0].MaxConnections = 1
	w.serve(s)
	if err := testnet.Ask(dial(t, vip), "1"); err != nil {
		t.Fatal(err)
	}
	wantReset(t, vip)
	w.wantEnded(flow.ByBaton, flow.ReasonLimit)
	if n := w.registry.DropCounts()[flow.DropBackendsFull]; n != 1 {
		t.Errorf("%d drops, want 1", n)
	}
}
