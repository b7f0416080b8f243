package bpf

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

func prefixes(list ...string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// sourcesCases tell clients apart in every way that there is.
var sourcesCases = map[string]Sources{
	"allow":                   {Allow: prefixes("192.0.2.0/24", "2001:db8::/32")},
	"allow one":               {Allow: prefixes("192.0.2.7/32", "2001:db8::7/128")},
	"allow one in another":    {Allow: prefixes("192.0.2.7/32", "192.0.2.0/28", "2001:db8::/64")},
	"allow all of one family": {Allow: prefixes("::/0")},
	"allow all of the other":  {Allow: prefixes("0.0.0.0/0")},
	"inside":                  {Inside: prefixes("192.0.2.0/28", "2001:db8::/64")},
	"inside, all":             {Inside: prefixes("0.0.0.0/0", "::/0")},
	"inside within allow":     {Allow: prefixes("192.0.2.0/24", "2001:db8::/32"), Inside: prefixes("192.0.2.0/28", "2001:db8::/64")},
	"allow within inside":     {Allow: prefixes("192.0.2.0/28", "2001:db8::/64"), Inside: prefixes("192.0.2.0/24", "2001:db8::/32")},
	"side by side":            {Allow: prefixes("192.0.2.0/28"), Inside: prefixes("192.0.2.16/28")},
	"bits below the prefix":   {Allow: prefixes("192.0.2.77/24", "2001:db8::7/32")},
}

// clients are addresses at the edges of the prefixes above, and others.
func clientsOfSources() (all []netip.Addr) {
	for _, s := range []string{
		"192.0.2.0", "192.0.2.7", "192.0.2.15", "192.0.2.16", "192.0.2.255", "192.0.1.255", "192.0.3.0", "0.0.0.1",
		"2001:db8::", "2001:db8::7", "2001:db8:0:1::", "2001:db8:ffff::1", "2001:db9::", "::1", "::ffff:0:0:1",
	} {
		all = append(all, netip.MustParseAddr(s))
	}
	for range 50 {
		all = append(all, netip.AddrFrom4([4]byte{192, 0, 2, byte(rand.Uint32())}))
	}
	return all
}

// What the program makes of a set is what its prefixes say one by one.
func TestProgramTellsSourcesApart(t *testing.T) {
	g := newGround(t, GuardOptions{})
	contains := func(list []netip.Prefix, a netip.Addr) bool {
		for _, p := range list {
			if p.Contains(a) {
				return true
			}
		}
		return false
	}
	for name, sources := range sourcesCases {
		t.Run(name, func(t *testing.T) {
			rules := make(map[lb.FrontendKey]Rule)
			for _, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
				rules[lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(any, 80)}] = Rule{All: AnswerRefuse, Inside: AnswerOwn, Sources: sources}
			}
			g.update(t, GuardUpdate{Rules: rules})
			for _, from := range clientsOfSources() {
				to := netip.MustParseAddrPort("192.0.2.100:80")
				if from.Is6() {
					to = netip.MustParseAddrPort("[2001:db8::100]:80")
				}
				want := GuardCounts{Refused: 1}
				switch {
				case len(sources.Allow) > 0 && !contains(sources.Allow, from):
					want = GuardCounts{Denied: 1}
				case contains(sources.Inside, from):
					want = GuardCounts{}
				}
				before := g.counts(t)
				got, err := g.guard.objects.Guard.Run(&ebpf.RunOptions{Context: lookupFrom(from, flow.TCP, to)})
				if err != nil {
					t.Fatal(err)
				}
				if c := g.counts(t).minus(before); c != want || (got == skDrop) != (want.Refused > 0) {
					t.Errorf("%s: verdict %d, counted %+v, want %+v", from, got, c, want)
				}
			}
		})
	}
}

// Who may not is not heard, at the first packet; others get what the frontend says,
// or the other answer.
func TestSources(t *testing.T) {
	g := newGround(t, GuardOptions{})
	eachKind(t, func(t *testing.T, at func(uint16) lb.FrontendKey) {
		web := at(80)
		g.serve(t, web, "web")
		client, all, none := g.client.IP6, "::/0", "2001:db8:1234::/48"
		if web.Address.Addr().Is4() {
			client, all, none = g.client.IP4, "0.0.0.0/0", "198.51.100.0/24"
		}
		own := []netip.Prefix{netip.PrefixFrom(client, client.BitLen())}
		for _, tt := range []struct {
			name string
			rule Rule
			want error
		}{
			{"allowed", Rule{All: AnswerOwn, Sources: Sources{Allow: own}}, nil},
			{"all are", Rule{All: AnswerOwn, Sources: Sources{Allow: prefixes(all)}}, nil},
			{"not allowed", Rule{All: AnswerOwn, Sources: Sources{Allow: prefixes(none)}}, errSilence},
			{"not allowed, and others are refused", Rule{All: AnswerRefuse, Sources: Sources{Allow: prefixes(none)}}, errSilence},
			{"refused", Rule{All: AnswerRefuse, Sources: Sources{Allow: own}}, errRefused},
			{"inside", Rule{All: AnswerSilent, Inside: AnswerOwn, Sources: Sources{Inside: own}}, nil},
			{"outside", Rule{All: AnswerSilent, Inside: AnswerOwn, Sources: Sources{Inside: prefixes(none)}}, errSilence},
			{"inside, and allowed", Rule{All: AnswerRefuse, Inside: AnswerOwn, Sources: Sources{Allow: own, Inside: prefixes(all)}}, nil},
			{"inside, not allowed", Rule{All: AnswerOwn, Inside: AnswerOwn, Sources: Sources{Allow: prefixes(none), Inside: own}}, errSilence},
			{"no sources again", Rule{All: AnswerOwn, Inside: AnswerSilent}, nil},
		} {
			g.update(t, GuardUpdate{Rules: map[lb.FrontendKey]Rule{web: tt.rule}})
			if got, err := ask(g.client, web, tt.want); !errors.Is(err, tt.want) || err == nil && got != "web" {
				t.Errorf("%s: got %q, %v; want %v", tt.name, got, err, tt.want)
			}
		}
	})
}

// A set is there once for all frontends that have it, and goes with the last.
func TestSetsOfSourcesGo(t *testing.T) {
	guard := newGuard(t, GuardOptions{Frontends: 2})
	update := func(u GuardUpdate) {
		t.Helper()
		if err := guard.Update(u); err != nil {
			t.Fatal(err)
		}
	}
	want := func(sets, sources int) {
		t.Helper()
		n, err := entries[guardSource](guard.objects.GuardSources)
		if err != nil || n != sources || len(guard.sets.byName) != sets {
			t.Errorf("%d sources in %d sets, %v; want %d in %d", n, len(guard.sets.byName), err, sources, sets)
		}
	}
	a, b := Sources{Allow: prefixes("192.0.2.0/24")}, Sources{Inside: prefixes("192.0.2.0/24", "192.0.2.0/28")}
	all := func(s Sources) (u GuardUpdate) {
		u.Rules = make(map[lb.FrontendKey]Rule)
		for port := range uint16(100) { // more than there is room for at first
			k := lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(vips[0], port+1)}
			u.Rules[k] = Rule{All: AnswerOwn, Sources: s}
			u.Forget = append(u.Forget, k)
		}
		return u
	}
	some := func(s Sources, n int) GuardUpdate {
		u := all(s)
		for _, k := range u.Forget[n:] {
			delete(u.Rules, k)
		}
		u.Forget = nil
		return u
	}
	want(0, 0)
	update(some(a, 100))
	want(1, 3)
	update(some(b, 1))
	want(2, 3+4)
	update(some(b, 100))
	want(1, 4)
	update(some(b, 100))
	want(1, 4)
	update(some(Sources{}, 99))
	want(1, 4)
	update(GuardUpdate{Forget: all(b).Forget})
	want(0, 0)
}

// A frontend at the wildcard address is at every address of the host, and at no VIP.
func TestWildcardFrontends(t *testing.T) {
	g := newGround(t, GuardOptions{})
	g.update(t, GuardUpdate{Protect: vips})
	for _, at := range []struct{ any, loopback, own, vip netip.Addr }{
		{netip.IPv4Unspecified(), netip.MustParseAddr("127.0.0.1"), g.host.IP4, vips[0]},
		{netip.IPv6Unspecified(), netip.IPv6Loopback(), g.host.IP6, vips[1]},
	} {
		server := testnet.ServeListener(g.listenShared(t, at.loopback), testnet.Named("node port"))
		t.Cleanup(server.Close)
		key := func(a netip.Addr) lb.FrontendKey {
			return lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(a, 30080)}
		}
		g.update(t, GuardUpdate{Rules: map[lb.FrontendKey]Rule{key(at.any): {All: AnswerShared}}})
		g.expect(t, key(at.own), "node port", nil)
		g.expect(t, key(at.vip), "", errRefused)
		if got, err := ask(g.host, key(at.loopback), nil); err != nil || got != "node port" {
			t.Errorf("%s: %q, %v", at.loopback, got, err)
		}
		g.update(t, GuardUpdate{Rules: map[lb.FrontendKey]Rule{key(at.any): {All: AnswerSilent}}})
		g.expect(t, key(at.own), "", errSilence)
		g.update(t, GuardUpdate{Forget: []lb.FrontendKey{key(at.any)}})
		g.expect(t, key(at.own), "", errRefused)
	}
}
