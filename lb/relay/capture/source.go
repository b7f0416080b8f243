package capture

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// source chooses the address from which the host's own connections to a VIP of the given family come. It is none of the
// VIPs. The result is invalid when there is no good one, and then no hint is given (see the package's doc).
func (h *Host) source(ipv4 bool, vips map[netip.Addr]bool) netip.Addr {
	preferred, device := h.defaultSource(ipv4)
	var best address
	for _, a := range h.addrs {
		if a.Is4() != ipv4 || vips[a.Addr] || !a.usable() {
			continue
		}
		if a.Addr == preferred {
			return a.Addr
		}
		if !best.IsValid() || compareSources(a, best, device) < 0 {
			best = a
		}
	}
	return best.Addr
}

// defaultSource gives what the default route with the lowest metric says: its source if it names one, and its device.
func (h *Host) defaultSource(ipv4 bool) (source netip.Addr, device int) {
	family := unix.AF_INET6
	if ipv4 {
		family = unix.AF_INET
	}
	routes := slices.DeleteFunc(slices.Clone(h.defaults), func(r netlink.Route) bool { return r.Family != family })
	if len(routes) == 0 {
		return netip.Addr{}, 0
	}
	r := slices.MinFunc(routes, func(a, b netlink.Route) int { return cmp.Compare(a.Priority, b.Priority) })
	device = r.LinkIndex
	if device == 0 && len(r.MultiPath) > 0 {
		device = r.MultiPath[0].LinkIndex
	}
	source, _ = netip.AddrFromSlice(r.Src)
	return source.Unmap(), device
}

// usable says whether the kernel accepts the address as the hint of a route through the loopback device: for IPv6 it must
// be global and past its duplicate address detection.
func (a address) usable() bool {
	if a.Is4() {
		return true
	}
	return !a.IsLinkLocalUnicast() && !a.IsLoopback() && a.flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0
}

// compareSources orders two addresses of a family: the wider scope first, then the default route's device, then a real
// device before loopback, then a lasting address before one that is deprecated, temporary or secondary.
func compareSources(a, b address, device int) int {
	fleeting := func(a address) bool {
		return a.flags&(unix.IFA_F_DEPRECATED|unix.IFA_F_SECONDARY) != 0 // for IPv6 IFA_F_SECONDARY is IFA_F_TEMPORARY
	}
	return cmp.Or(
		cmp.Compare(a.scope, b.scope),
		compareBool(a.index != device, b.index != device),
		compareBool(a.loopback, b.loopback),
		compareBool(fleeting(a), fleeting(b)),
		cmp.Compare(a.index, b.index),
		cmp.Compare(a.position, b.position),
	)
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
