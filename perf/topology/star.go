package topology

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/baton-lb/baton/internal/testnet"
)

// Star is a client and backends, each on a link of its own to the balancer that
// routes between them. The zero value has two backends and speaks IPv4.
type Star struct {
	Backends int // 0 = 2
	IPv6     bool
}

var _ Topology = Star{}

// Name implements Topology.
func (s Star) Name() string {
	family := "IPv4"
	if s.IPv6 {
		family = "IPv6"
	}
	return fmt.Sprintf("star of %d backends, %s", s.backends(), family)
}

func (s Star) backends() int {
	if s.Backends == 0 {
		return 2
	}
	return s.Backends
}

// Build implements Topology.
func (s Star) Build(ctx context.Context) (*Hosts, error) {
	h, err := newHosts(ctx, func(h *Hosts) {
		star := testnet.NewStar(h, s.backends())
		h.Client, h.Balancer, h.Backends = star.Client, star.Balancer, star.Backends
		h.VIP, h.ClientDev = netip.MustParseAddr("10.96.0.10"), star.ClientLink.A.Dev
		if s.IPv6 {
			h.VIP = netip.MustParseAddr("fd96::10")
		}
		h.ClientAt = s.of(star.ClientLink.B)
		for _, l := range star.BackendLinks {
			h.BackendAt = append(h.BackendAt, s.of(l.B))
			h.MaskedAt = append(h.MaskedAt, s.of(l.A))
		}
		for _, host := range append([]*testnet.Host{h.Client, h.Balancer}, h.Backends...) {
			tune(host)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("build a %s: %w", s.Name(), err)
	}
	return h, nil
}

func (s Star) of(p testnet.Port) netip.Addr {
	if s.IPv6 {
		return p.IP6
	}
	return p.IP4
}

// tune gives a host what whoever runs a balancer gives it: all ports to connect
// from, and those of connections in TIME_WAIT again after a second. These settings
// are for IPv6 too.
func tune(h *testnet.Host) {
	h.Sysctl("net.ipv4.ip_local_port_range", "1024 65535")
	h.Sysctl("net.ipv4.tcp_tw_reuse", "1")
}
