package transparent

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

func TestJudge(t *testing.T) {
	near := func(device int) way { return way{known: true, device: device} }
	far := func(device int) way { return way{known: true, device: device, gateway: true} }
	for _, tt := range []struct {
		name            string
		client, backend way
		want            flow.NotTransparent
		onNode          flow.NotTransparent // "" = the same
	}{
		{"networks of ours", near(1), near(2), "", ""},
		{"a client from afar, a backend of ours", far(1), near(2), "", ""},
		{"the same, by one device: we may be the backend's router", far(1), near(1), "", flow.NotTransparentOtherWay},
		{"a client of ours, a backend afar", near(1), far(2), "", ""},
		{"both afar, and we are between", far(1), far(2), "", ""},
		{"both afar, the same way", far(1), far(1), flow.NotTransparentOtherWay, ""},
		{"a client from afar, a backend in a tunnel", far(1), way{known: true, device: 2, tunnel: true}, flow.NotTransparentOtherWay, ""},
		{"a client of ours, a backend in a tunnel", near(1), way{known: true, device: 2, gateway: true, tunnel: true}, "", ""},
		{"a client in a tunnel, a backend of ours", way{known: true, device: 2, tunnel: true}, near(1), "", ""},
		{"one network", near(1), near(1), flow.NotTransparentOtherWay, ""},
		{"one network, the backend behind its router", near(1), far(1), flow.NotTransparentOtherWay, ""},
		{"a bridge of ours", way{known: true, device: 1, bridge: true}, way{known: true, device: 1, bridge: true}, "", ""},
		{"the client is this host", way{known: true, local: true}, near(1), flow.NotTransparentHostLocal, ""},
		{"the backend is this host", near(1), way{known: true, local: true}, flow.NotTransparentHostLocal, ""},
		{"no route", way{}, near(1), "", ""},
	} {
		for _, node := range []bool{false, true} {
			want := tt.want
			if node && tt.onNode != "" {
				want = tt.onNode
			}
			if got := judge(tt.client, tt.backend, node); got != want {
				t.Errorf("%s, a node %t: %q, want %q", tt.name, node, got, want)
			}
		}
	}
}

// What a bridge carries past this host is said to be so.
func TestBridged(t *testing.T) {
	everyKind(t, func(t *testing.T, g *ground, v6 bool) {
		_, isBridge := g.between.Netlink().LinkByName("br0")
		why, bridged := g.it.Ask(g.clientAt[v6], g.backendAt[v6])
		if why != "" || bridged != (isBridge == nil) {
			t.Errorf("%q, bridged %v", why, bridged)
		}
	})
}

// What the kernel says of addresses is understood.
func TestWays(t *testing.T) {
	star := testnet.NewStar(t, 2)
	h, nl := star.Balancer, star.Balancer.Netlink()
	h.AddRoute(netip.MustParsePrefix("198.51.100.0/24"), star.Backends[0].IP4)
	h.AddRoute(netip.MustParsePrefix("2001:db8::/32"), star.Backends[0].IP6)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "tun0"
	tunnel := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: 42, Port: 4789}
	if err := nl.LinkAdd(tunnel); err != nil {
		t.Logf("no vxlan here: %v", err)
	} else {
		h.AddAddr("tun0", netip.MustParsePrefix("10.99.0.1/24"))
		if err := nl.LinkSetUp(tunnel); err != nil {
			t.Fatal(err)
		}
		if w := newWays(nl, false).toLocked(netip.MustParseAddr("10.99.0.2")); !w.tunnel || !w.far() {
			t.Errorf("in a tunnel: %+v", w)
		}
	}
	w := newWays(nl, false)
	for _, tt := range []struct {
		client, backend netip.Addr
		want            flow.NotTransparent
	}{
		{star.Client.IP4, star.Backends[0].IP4, ""},
		{star.Client.IP6, star.Backends[0].IP6, ""},
		{star.Client.IP4, star.Backends[0].IP6, flow.NotTransparentFamily},
		{star.Client.IP6, star.Backends[0].IP4, flow.NotTransparentFamily},
		{star.Backends[0].IP4, star.Backends[0].IP4, flow.NotTransparentHairpin},
		{star.Backends[0].IP6, star.Backends[0].IP6, flow.NotTransparentHairpin},
		{star.Balancer.IP4, star.Backends[0].IP4, flow.NotTransparentHostLocal},
		{netip.MustParseAddr("127.0.0.1"), star.Backends[0].IP4, flow.NotTransparentHostLocal},
		{netip.IPv6Loopback(), star.Backends[0].IP6, flow.NotTransparentHostLocal},
		{star.Client.IP6, star.Balancer.IP6, flow.NotTransparentHostLocal},
		{netip.MustParseAddr("198.51.100.1"), star.Backends[1].IP4, ""},
		{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2"), flow.NotTransparentOtherWay},
		{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), flow.NotTransparentOtherWay},
		{star.Client.IP4, netip.MustParseAddr("198.51.100.2"), ""},
		{star.Client.IP4, netip.MustParseAddr("192.0.2.1"), ""}, // no route
	} {
		if got, bridged := w.ask(tt.client, tt.backend); got != tt.want || bridged {
			t.Errorf("%s to %s: %q, want %q; bridged %v", tt.client, tt.backend, got, tt.want, bridged)
		}
	}
}

// BenchmarkAsk is what a dial pays once a second for each address, and what it pays else.
func BenchmarkAsk(b *testing.B) {
	star := testnet.NewStar(b, 1)
	w := newWays(star.Balancer.Netlink(), false)
	b.Run("asked", func(b *testing.B) {
		for b.Loop() {
			clear(w.by)
			w.ask(star.Client.IP4, star.Backends[0].IP4)
		}
	})
	b.Run("remembered", func(b *testing.B) {
		for b.Loop() {
			w.ask(star.Client.IP4, star.Backends[0].IP4)
		}
	})
}
