package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vishvananda/netlink"

	"github.com/baton-lb/baton/internal/testnet"
)

// routeProtocol marks the routes that the command makes for VIPs.
const routeProtocol = 66

// vipRoutes lists the VIPs that a host has a route of the command's for.
func vipRoutes(t *testing.T, h *testnet.Host) (vips []string) {
	t.Helper()
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		filter := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: routeProtocol}
		list, err := h.Netlink().RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			t.Fatalf("list routes: %v", err)
		}
		for _, r := range list {
			vips = append(vips, r.Dst.IP.String())
		}
	}
	return vips
}

// noRoutes waits until none is left.
func (b *baton) noRoutes(w world) {
	b.t.Helper()
	eventually(b.t, "no VIP has a route any more", func() error {
		if left := vipRoutes(b.t, w.Balancer); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}

// otherVIP is a second VIP of the world.
func (w world) otherVIP() netip.AddrPort {
	return netip.AddrPortFrom(w.vip.Addr().Next(), w.vip.Port())
}

// unreachable checks that the VIP takes no connection, at once: its port refuses,
// or nobody has the address any more.
func (w world) unreachable(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	c, err := w.Client.DialContext(ctx, "tcp", netip.AddrPort{}, w.vip)
	if err == nil {
		c.Close()
		return errors.New("the VIP took a connection")
	}
	for _, ok := range []error{unix.ECONNREFUSED, unix.ENETUNREACH, unix.EHOSTUNREACH} {
		if errors.Is(err, ok) {
			return nil
		}
	}
	return fmt.Errorf("want a refusal, got: %w", err)
}
