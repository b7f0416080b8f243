package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// turnedAway connects and expects a reset at once; it may come so soon that
// connect(2) reports it.
func (w world) turnedAway(t *testing.T, from *testnet.Host) {
	t.Helper()
	c, err := from.Dial("tcp", w.vip)
	if err == nil {
		_, err = readEnd(c, 5*time.Second)
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s: the connection ended with %v, want a reset at once", from.Name(), err)
	}
}

// ended waits for n ended flows that say who ended them, and why.
func (b *baton) wantEnded(n int, by flow.By, reason flow.Reason) {
	b.t.Helper()
	eventually(b.t, fmt.Sprintf("%d flows ended by %s (%s)", n, by, reason), func() error {
		found := 0
		for _, v := range b.ended() {
			if v.EndedBy == by && v.Reason == reason {
				found++
			}
		}
		if found != n {
			return fmt.Errorf("%d did", found)
		}
		return nil
	})
}

func TestAllowAndDeny(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		other := w.AddClient("other")
		bits := w.addr(w.Client).BitLen() - 8 // the client's whole network
		network := netip.PrefixFrom(w.addr(w.Client), bits).Masked()
		b := start(t, w.Balancer, w.service(nil, fmt.Sprintf("allow: [%q]", network)))
		away := 0
		for _, tc := range []struct {
			rules         []string
			client, other bool
		}{
			{[]string{fmt.Sprintf("allow: [%q]", network)}, true, false},
			{[]string{fmt.Sprintf("deny: [%q]", w.addr(w.Client))}, false, true},
			{[]string{fmt.Sprintf("allow: [%q]", network), fmt.Sprintf("deny: [%q]", w.addr(w.Client))}, false, false},
			{nil, true, true},
		} {
			b.reload(w.service(nil, append(tc.rules, "drainTimeout: 31s")...))
			for from, may := range map[*testnet.Host]bool{w.Client: tc.client, other: tc.other} {
				if may {
					if _, err := from.AskName(w.vip); err != nil {
						t.Errorf("%v: %s: %v", tc.rules, from.Name(), err)
					}
					continue
				}
				w.turnedAway(t, from)
				away++
			}
		}
		b.wantEnded(away, flow.ByBaton, flow.ReasonDenied)
		b.wantMetric(float64(away), "baton_drops_total", `reason="denied"`)
		b.wantMetric(float64(away), "baton_flows_total", `service="web"`, `ended_by="baton"`, `reason="denied"`)
	})
}

func TestLimitConnections(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, "limits: {connections: 2}"))
		one, _ := w.named(t)
		two, _ := w.named(t)
		w.turnedAway(t, w.Client)
		b.wantEnded(1, flow.ByBaton, flow.ReasonLimit)
		b.wantMetric(1, "baton_drops_total", `reason="limit"`)
		one.works(t)
		one.ends(t)
		b.wantFlows(1)
		three, _ := w.named(t)
		w.turnedAway(t, w.Client)
		b.reload(w.service(nil, "limits: {connections: 3}"))
		four, _ := w.named(t)
		for _, c := range []*conn{two, three, four} {
			c.works(t)
		}
		w.turnedAway(t, w.Client)
		b.wantMetric(3, "baton_drops_total", `reason="limit"`)
	})
}

func TestLimitPerClient(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		other := w.AddClient("other")
		b := start(t, w.Balancer, w.service(nil, "limits: {perClient: 1}"))
		c, _ := w.named(t)
		w.turnedAway(t, w.Client)
		if _, err := other.AskName(w.vip); err != nil {
			t.Errorf("another client: %v", err)
		}
		b.wantMetric(1, "baton_drops_total", `reason="limit-per-client"`)
		b.wantEnded(1, flow.ByBaton, flow.ReasonLimit)
		c.ends(t)
		b.wantFlows(0)
		w.who(t)
	})
}

func TestLimitRate(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		// So few that none comes back while the test is at it.
		b := start(t, w.Balancer, w.service(nil, "limits: {newPerSecond: 1}"))
		w.who(t)
		away := 0
		eventually(t, "one is over the limit", func() error {
			c, err := w.Client.Dial("tcp", w.vip)
			if err == nil {
				_, err = testnet.ReadName(c)
				c.Close()
			}
			if !errors.Is(err, syscall.ECONNRESET) {
				return fmt.Errorf("it ended with %w", err)
			}
			away++
			return nil
		})
		b.wantMetric(float64(away), "baton_drops_total", `reason="limit-rate"`)
		b.wantEnded(away, flow.ByBaton, flow.ReasonLimit)
		eventually(t, "there is room again", func() error { _, err := w.Client.AskName(w.vip); return err })
	})
}

func TestBackendMaxConnections(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(w.with(map[int]string{0: ", maxConnections: 1", 1: ", maxConnections: 2"})))
		var open []*conn
		count := map[string]int{}
		for range 3 {
			c, name := w.named(t)
			open = append(open, c)
			count[name]++
		}
		if count[w.Backends[0].Name()] != 1 || count[w.Backends[1].Name()] != 2 {
			t.Errorf("the connections are at %v", count)
		}
		w.turnedAway(t, w.Client)
		b.wantMetric(1, "baton_drops_total", `reason="backends-full"`)
		b.wantEnded(1, flow.ByBaton, flow.ReasonLimit)
		open[0].ends(t)
		b.wantFlows(2)
		w.named(t)
		w.turnedAway(t, w.Client)
	})
}

// seen is a backend that says from where it was connected to.
func seen(c net.Conn) {
	fmt.Fprintln(c, c.RemoteAddr())
	testnet.Echo(c)
}

func TestSourceAddresses(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.Backends[0].Serve(8080, seen)
		second := w.towards(0).Next().Next()
		bits := 24
		if w.v6 {
			bits = 64
		}
		w.Balancer.AddAddr(w.BackendLinks[0].A.Dev, netip.PrefixFrom(second, bits))
		addrs := []netip.Addr{w.towards(0), second}
		b := start(t, w.Balancer, fmt.Sprintf("source: {addresses: [%q, %q], ports: \"40000-40004\"}\n", addrs[0], addrs[1])+w.service(nil))
		used := map[netip.AddrPort]bool{}
		var open []*conn
		for range 10 {
			c, text := w.named(t)
			open = append(open, c)
			from := netip.MustParseAddrPort(text)
			if !slices.Contains(addrs, from.Addr()) || from.Port() < 40000 || from.Port() > 40004 {
				t.Errorf("the backend was connected to from %s", from)
			}
			used[from] = true
		}
		if len(used) != 10 {
			t.Errorf("%d sources for 10 connections: %v", len(used), used)
		}
		w.turnedAway(t, w.Client) // every port is in use
		b.wantEnded(1, flow.ByBaton, flow.ReasonLocalResources)
		b.wantMetric(1, "baton_drops_total", `reason="no-ports"`)
		if row := b.row(w.backend(0).String()); row.Failures != 0 {
			t.Errorf("the backend is blamed %d times", row.Failures)
		}
		for _, c := range open {
			c.works(t)
			c.ends(t)
		}
		b.wantFlows(0)
		w.named(t)
	})
}

// spread counts where n connections in a row go.
func (w world) spread(t *testing.T, n int) (at []int) {
	t.Helper()
	at = make([]int, len(w.Backends))
	for range n {
		at[w.number(t, w.who(t))]++
	}
	return at
}

func TestWeights(t *testing.T) {
	bothFamilies(t, 3, func(t *testing.T, w world) {
		w.serveNamed()
		start(t, w.Balancer, w.service(w.with(map[int]string{0: ", weight: 5", 1: ", weight: 1", 2: ", weight: 0"})))
		if got := w.spread(t, 24); !slices.Equal(got, []int{20, 4, 0}) {
			t.Errorf("weights 5, 1 and 0 gave %v of 24", got)
		}
	})
}

func TestPriorities(t *testing.T) {
	bothFamilies(t, 3, func(t *testing.T, w world) {
		w.serveNamed()
		group := func(more ...string) string {
			m := map[int]string{0: ", priority: 0", 1: ", priority: 0", 2: ", priority: 1"}
			for i, s := range more {
				m[i] += s
			}
			return w.service(w.with(m))
		}
		b := start(t, w.Balancer, group())
		if got := w.spread(t, 8); !slices.Equal(got, []int{4, 4, 0}) {
			t.Errorf("the first group gave %v of 8", got)
		}
		b.reload(group(", state: drain"))
		if got := w.spread(t, 4); !slices.Equal(got, []int{0, 4, 0}) {
			t.Errorf("what is left of the first group gave %v of 4", got)
		}
		b.reload(group(", state: drain", ", state: down"))
		if got := w.spread(t, 4); !slices.Equal(got, []int{0, 0, 4}) {
			t.Errorf("the second group gave %v of 4", got)
		}
		b.reload(group())
		if got := w.spread(t, 4); got[2] != 0 {
			t.Errorf("the first group is back and gave %v of 4", got)
		}
	})
}

func TestZones(t *testing.T) {
	bothFamilies(t, 3, func(t *testing.T, w world) {
		w.serveNamed()
		zones := func(first string) string {
			return "zone: a\n" + w.service(w.with(map[int]string{0: ", zone: a" + first, 1: ", zone: b", 2: ""}))
		}
		b := start(t, w.Balancer, zones(""))
		if got := w.spread(t, 6); !slices.Equal(got, []int{6, 0, 0}) {
			t.Errorf("the balancer's zone gave %v of 6", got)
		}
		b.reload(zones(", state: drain"))
		if got := w.spread(t, 6); !slices.Equal(got, []int{0, 3, 3}) {
			t.Errorf("the other zones gave %v of 6", got)
		}
	})
}

// Each algorithm, as far as clients can tell it from the others.
func TestAlgorithms(t *testing.T) {
	bothFamilies(t, 3, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, "balance: least-connections"))
		var open []*conn
		at := make([]int, 3)
		for range 9 {
			c, name := w.named(t)
			open = append(open, c)
			at[w.number(t, name)]++
		}
		if !slices.Equal(at, []int{3, 3, 3}) {
			t.Errorf("least-connections put open connections at %v", at)
		}
		for _, c := range open {
			c.ends(t)
		}
		b.wantFlows(0)
		for _, algorithm := range []string{"source-hash", "maglev"} {
			b.reload(w.service(nil, "balance: "+algorithm))
			if got := w.spread(t, 12); algorithm == "source-hash" && slices.Max(got) != 12 {
				t.Errorf("%s sent one client to %v", algorithm, got)
			}
		}
		b.reload(w.service(nil, "balance: random"))
		if got := w.spread(t, 60); slices.Min(got) == 0 {
			t.Errorf("random gave %v of 60", got)
		}
	})
}
