package e2e

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/baton-lb/baton/internal/testnet"
)

// between is a client and backends with the balancer on the way between them, seen
// through one family.
type between struct {
	client, balancer *testnet.Host
	backends         []*testnet.Host
	clientAt         netip.Addr
	backendAt        []netip.Addr
	vip              netip.Addr
	bridged          bool
}

const shownPort = 8080

// onTheWay runs a test with the balancer as a router and as a bridge, over IPv4 and IPv6.
func onTheWay(t *testing.T, backends int, test func(t *testing.T, w between)) {
	for _, bridged := range []bool{false, true} {
		for _, v6 := range []bool{false, true} {
			kind, family := "router", "IPv4"
			if bridged {
				kind = "bridge"
			}
			if v6 {
				family = "IPv6"
			}
			t.Run(kind+" "+family, func(t *testing.T) {
				t.Parallel()
				w := between{bridged: bridged, vip: netip.MustParseAddr("10.96.0.10")}
				if v6 {
					w.vip = netip.MustParseAddr("fd96::10")
				}
				if bridged {
					w.bridge(t, backends, v6)
				} else {
					w.route(t, backends, v6)
				}
				for _, b := range w.backends {
					b.Serve(shownPort, tellPeer)
				}
				for i := range w.backends {
					w.backends[i].ServeUDP(netip.AddrPortFrom(w.backendAt[i], shownPort), testnet.TellPeerUDP)
				}
				test(t, w)
			})
		}
	}
}

func (w *between) route(t *testing.T, backends int, v6 bool) {
	star := testnet.NewStar(t, backends)
	of := world{Star: star, v6: v6}
	w.client, w.balancer, w.backends, w.clientAt = star.Client, star.Balancer, star.Backends, of.addr(star.Client)
	for _, b := range star.Backends {
		w.backendAt = append(w.backendAt, of.addr(b))
	}
}

// bridge joins all hosts to a bridge of the balancer, in one subnet.
func (w *between) bridge(t *testing.T, backends int, v6 bool) {
	n := testnet.New(t)
	w.balancer, w.client = n.Host("balancer"), n.Host("client")
	bridge := n.Bridge(w.balancer, "br0")
	at := func(last int) netip.Prefix {
		if v6 {
			return netip.MustParsePrefix(fmt.Sprintf("fd00:77::%d/64", last))
		}
		return netip.MustParsePrefix(fmt.Sprintf("10.77.0.%d/24", last))
	}
	w.balancer.AddAddr("br0", at(1))
	join := func(h *testnet.Host, a netip.Prefix) {
		h.AddAddr(bridge.Join(h), a)
		h.AddRoute(netip.PrefixFrom(w.vip, w.vip.BitLen()), at(1).Addr())
	}
	w.clientAt = at(2).Addr()
	join(w.client, at(2))
	for i := range backends {
		b := n.Host(fmt.Sprintf("backend%d", i+1))
		join(b, at(3+i))
		w.backends, w.backendAt = append(w.backends, b), append(w.backendAt, at(3+i).Addr())
	}
}

// tellPeer says who its client is, and echoes.
func tellPeer(c net.Conn) {
	fmt.Fprintf(c, "%s\n", c.RemoteAddr())
	_, _ = io.Copy(c, c)
}
