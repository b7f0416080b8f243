package testnet

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Host is a network namespace that acts as a host.
type Host struct {
	// Immutable after the first link: the host's first addresses.
	IP4, IP6 netip.Addr

	// Immutable after New.
	t    TB
	name string
	ns   netns.NsHandle
	nl   *netlink.Handle

	// Used by the test's goroutine alone.
	ports int
}

// Name is what the host was called when it was made.
func (h *Host) Name() string { return h.name }

// NS is the host's namespace. It is closed with the test.
func (h *Host) NS() netns.NsHandle { return h.ns }

// Netlink is a route netlink handle of the host's namespace, closed with the test.
func (h *Host) Netlink() *netlink.Handle { return h.nl }

// Do runs f on a thread inside the host. Sockets that f makes belong to the host
// for good; goroutines that f starts run outside. Calls may be nested.
func (h *Host) Do(f func()) {
	h.t.Helper()
	if err := inNamespace(h.ns, f); err != nil {
		h.t.Fatalf("host %s: %v", h.name, err)
	}
}

// AddAddr gives a device of the host one more address, usable at once.
func (h *Host) AddAddr(dev string, prefix netip.Prefix) {
	h.t.Helper()
	if err := h.addAddr(dev, prefix); err != nil {
		h.t.Fatalf("host %s: %v", h.name, err)
	}
}

// AddRoute sends packets for prefix to the gateway via, a neighbour of the host.
func (h *Host) AddRoute(prefix netip.Prefix, via netip.Addr) {
	h.t.Helper()
	err := h.nl.RouteReplace(&netlink.Route{Dst: ipNet(prefix.Masked()), Gw: via.AsSlice()})
	if err != nil {
		h.t.Fatalf("host %s: add route %s via %s: %v", h.name, prefix, via, err)
	}
}

// DefaultVia makes via the gateway for everything else in its family.
func (h *Host) DefaultVia(via netip.Addr) {
	h.t.Helper()
	zero := netip.IPv6Unspecified()
	if via.Is4() {
		zero = netip.IPv4Unspecified()
	}
	h.AddRoute(netip.PrefixFrom(zero, 0), via)
}

func (h *Host) close() {
	if h.nl != nil {
		h.nl.Close()
	}
	h.ns.Close()
}
