package transparent

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// pods are two hosts with a device of the third each and addresses of no network: the third has a route to each address,
// by its device, as CNI plugins without a bridge do it.
func pods(t *testing.T) *ground {
	star := testnet.NewStar(t, 1)
	g := &ground{
		t: t, client: star.Client, backend: star.Backends[0], between: star.Balancer,
		clientAt:  map[bool]netip.Addr{false: netip.MustParseAddr("10.244.0.2"), true: netip.MustParseAddr("fd00:244::2")},
		backendAt: map[bool]netip.Addr{false: netip.MustParseAddr("10.244.0.3"), true: netip.MustParseAddr("fd00:244::3")},
	}
	for _, pod := range []struct {
		host *testnet.Host
		at   map[bool]netip.Addr
		link testnet.Link
	}{{g.client, g.clientAt, star.ClientLink}, {g.backend, g.backendAt, star.BackendLinks[0]}} {
		dev, err := g.between.Netlink().LinkByName(pod.link.A.Dev)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range pod.at {
			pod.host.AddAddr(pod.link.B.Dev, netip.PrefixFrom(a, a.BitLen()))
			to := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
			if err := g.between.Netlink().RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: to, Scope: netlink.SCOPE_LINK}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return g
}

// A pod that is given itself by its own service is masked: nothing can come back to an address that is its own.
func TestHairpinOfAPod(t *testing.T) {
	g := pods(t)
	g.open(t)
	for _, a := range g.clientAt {
		if why, _ := g.it.Ask(a, a); why != flow.NotTransparentHairpin {
			t.Errorf("%s at itself: %q", a, why)
		}
	}
}
