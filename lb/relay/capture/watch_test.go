package capture

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// TestWatch: what the loss of the hint's address and of the loopback device takes away comes back.
func TestWatch(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("lone")
	h.AddAddr("lo", netip.MustParsePrefix("192.0.2.1/32"))
	r, _ := open(t, h, "")
	vips := addrs("10.96.0.10", "fd96::10")
	note := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- r.Watch(ctx, func() {
			select {
			case note <- struct{}{}:
			default:
			}
		})
	}()
	until := func(what string, ok func(routes map[netip.Addr]netip.Addr) bool) {
		t.Helper()
		testnet.Eventually(t, 5*time.Second, what, func() error {
			select {
			case <-note:
				ensure(t, r, vips...)
			default:
			}
			if routes := localRoutes(t, h, true); len(routes) != 2 || !ok(routes) {
				return errors.New("not yet")
			}
			return nil
		})
	}
	until("routes", func(routes map[netip.Addr]netip.Addr) bool { return routes[vips[0]] == addr("192.0.2.1") })
	delAddr(t, h, "lo", "192.0.2.1/32")
	until("another hint", func(routes map[netip.Addr]netip.Addr) bool { return routes[vips[0]] == addr("127.0.0.1") })
	lo, err := h.Netlink().LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Netlink().LinkSetDown(lo), h.Netlink().LinkSetUp(lo)); err != nil {
		t.Fatal(err)
	}
	until("routes after loopback was down", func(map[netip.Addr]netip.Addr) bool { return true })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestLoopbackDown: the refusal says what to do.
func TestLoopbackDown(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("lone")
	lo, err := h.Netlink().LinkByName("lo")
	if err == nil {
		err = h.Netlink().LinkSetDown(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, _ := open(t, h, "")
	report, err := r.Ensure(addrs("10.96.0.10", "fd96::10")) // IPv4 does without the device being up
	refusal := report.Refused[addr("fd96::10")]
	if err != nil || len(report.Refused) != 1 || refusal == nil || !strings.Contains(refusal.Error(), "ip link set lo up") {
		t.Fatalf("%+v, %v", report, err)
	}
}
