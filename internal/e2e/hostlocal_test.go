package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// A process on the balancer's own host uses VIPs as others do, in every way of
// capturing them; its flows stay in userspace, and say so. Clients on other hosts are
// served beside it.
func TestHostLocalClient(t *testing.T) {
	for _, capture := range []string{"anyip", "sklookup", "bind"} {
		t.Run(capture, func(t *testing.T) {
			onTheWay(t, 1, func(t *testing.T, w between) {
				if capture == "bind" {
					w.balancer.AddAddr("lo", netip.PrefixFrom(w.vip, w.vip.BitLen()))
				}
				services := strings.ReplaceAll(w.services([]int{80}, "offload: {mode: always}"), "    clientAddress: transparent\n", "")
				b := start(t, w.balancer, "capture: "+capture+"\n"+services)
				for _, network := range bothProtocols {
					for _, h := range []*testnet.Host{w.balancer, w.client} {
						c, saw := w.asks(t, h, network, netip.AddrPort{}, 80)
						me := netip.MustParseAddrPort(c.LocalAddr().String())
						if saw == me.String() {
							t.Errorf("%s from %s: the backend saw %s", network, h.Name(), saw)
						}
						if network == "tcp" {
							echoesAll(t, c, 1<<20)
						} else if again := sees(t, c); again != saw {
							t.Errorf("the backend saw %s first, then %s", saw, again)
						}
						if h == w.balancer {
							b.wantHostLocal(t, network, me)
						}
					}
				}
			})
		})
	}
}

func (b *baton) wantHostLocal(t *testing.T, network string, client netip.AddrPort) {
	t.Helper()
	eventually(t, network+" stays in userspace", func() error {
		v := b.shownFlow(t, network, client, 80)
		if v.Path != flow.PathUserspace || v.NotOffloaded != flow.NotOffloadedHostLocal {
			return fmt.Errorf("%s by %s, not offloaded: %q", v.State, v.Path, v.NotOffloaded)
		}
		return nil
	})
}
