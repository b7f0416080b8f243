package capture

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/dump"
)

// Host is what a network namespace had when it was read: its addresses, what else is local to it, its gateways, and the
// routes of ours.
type Host struct {
	addrs    map[netip.Addr]address
	local    map[netip.Addr]string     // by a local route of somebody else, to one address; says whose
	wide     map[netip.Prefix]string   // the same, to more than one
	special  map[netip.Addr]string     // broadcast and anycast addresses
	gateways map[netip.Addr]string     // next hops; says the route
	ours     map[netip.Addr]netip.Addr // VIPs with a route of ours, and its source hint
	routed4  int                       // of ours, those of IPv4
	devices  map[int]device
	defaults []netlink.Route // default routes of the main table
}

// address is one address of the host.
type address struct {
	netip.Addr
	device
	scope    int // RT_SCOPE_...
	flags    int // IFA_F_...
	position int // in the kernel's order
}

type device struct {
	index    int
	name     string
	loopback bool
}

// kernel is what is asked of rtnetlink. *netlink.Handle does it; tests put faults in between.
type kernel interface {
	LinkList() ([]netlink.Link, error)
	AddrList(link netlink.Link, family int) ([]netlink.Addr, error)
	RouteListFilteredIter(family int, filter *netlink.Route, mask uint64, f func(netlink.Route) bool) error
	RouteAdd(*netlink.Route) error
	RouteReplace(*netlink.Route) error
	RouteDel(*netlink.Route) error
}

var _ kernel = (*netlink.Handle)(nil)

// ReadHost reads the namespace of the calling thread.
func ReadHost() (*Host, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	defer nl.Close()
	return readHost(nl)
}

// readHost reads again if the tables changed meanwhile, a few times.
func readHost(k kernel) (*Host, error) {
	h, err := dump.Whole(func() (*Host, error) { return readHostOnce(k) })
	if err != nil {
		return nil, fmt.Errorf("read addresses and routes: %w", err)
	}
	return h, nil
}

func readHostOnce(k kernel) (*Host, error) {
	h := &Host{
		addrs:    make(map[netip.Addr]address),
		local:    make(map[netip.Addr]string),
		wide:     make(map[netip.Prefix]string),
		special:  make(map[netip.Addr]string),
		gateways: make(map[netip.Addr]string),
		ours:     make(map[netip.Addr]netip.Addr),
		devices:  make(map[int]device),
	}
	links, err := k.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		h.devices[a.Index] = device{index: a.Index, name: a.Name, loopback: a.Flags&net.FlagLoopback != 0}
	}
	addrs, err := k.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for i, a := range addrs {
		h.addAddress(a, i)
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		// The filter with table 0 means all tables.
		err := k.RouteListFilteredIter(family, &netlink.Route{}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
			h.addRoute(r)
			return true
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
	}
	return h, nil
}

func (h *Host) addAddress(a netlink.Addr, position int) {
	if a.IPNet == nil {
		return
	}
	addr, ok := netip.AddrFromSlice(a.IP)
	if !ok {
		return
	}
	addr = addr.Unmap()
	if old, ok := h.addrs[addr]; ok && old.position < position {
		return
	}
	h.addrs[addr] = address{Addr: addr, device: h.devices[a.LinkIndex], scope: a.Scope, flags: a.Flags, position: position}
}

// addRoute sorts a route into what it says about addresses.
func (h *Host) addRoute(r netlink.Route) {
	prefix, ok := routePrefix(r)
	if !ok {
		return
	}
	for _, gw := range nextHops(r) {
		h.gateways[gw] = fmt.Sprintf("next hop to %s", prefix)
	}
	switch r.Type {
	case unix.RTN_BROADCAST:
		h.special[prefix.Addr()] = "broadcast"
	case unix.RTN_ANYCAST:
		h.special[prefix.Addr()] = "anycast"
	case unix.RTN_LOCAL:
		// Those of other tables hold for what a rule sends there: marked packets, as
		// transparent proxies have it, ours too.
		if r.Table == unix.RT_TABLE_LOCAL {
			h.addLocal(r, prefix)
		}
	case unix.RTN_UNICAST:
		if prefix.Bits() == 0 && r.Table == unix.RT_TABLE_MAIN {
			h.defaults = append(h.defaults, r)
		}
	}
}

// addLocal keeps a local route, unless it stands for a configured address.
func (h *Host) addLocal(r netlink.Route, prefix netip.Prefix) {
	if isOurs(r) {
		hint, _ := netip.AddrFromSlice(r.Src)
		h.route(prefix.Addr(), hint.Unmap())
		return
	}
	if _, ok := h.addrs[prefix.Addr()]; ok && prefix.IsSingleIP() {
		return
	}
	by := fmt.Sprintf("route local %s dev %s proto %s", prefix, h.devices[r.LinkIndex].name, r.Protocol)
	if prefix.IsSingleIP() {
		h.local[prefix.Addr()] = by
	} else {
		h.wide[prefix] = by
	}
}

// route notes a route of ours.
func (h *Host) route(vip, hint netip.Addr) {
	if _, known := h.ours[vip]; !known && vip.Is4() {
		h.routed4++
	}
	h.ours[vip] = hint
}

// unroute notes that one is gone.
func (h *Host) unroute(vip netip.Addr) {
	if _, known := h.ours[vip]; known && vip.Is4() {
		h.routed4--
	}
	delete(h.ours, vip)
}

// isOurs says whether a route is one that Routes made.
func isOurs(r netlink.Route) bool {
	return r.Protocol == RouteProtocol && r.Type == unix.RTN_LOCAL && r.Table == unix.RT_TABLE_LOCAL
}

// Configured says whether an address is configured on the host, and on which device.
func (h *Host) Configured(a netip.Addr) (dev string, ok bool) {
	addr, ok := h.addrs[a.Unmap()]
	return addr.name, ok
}

// Local says whether an address is local to the host without us, and by what: configured, or by a route of others.
func (h *Host) Local(a netip.Addr) (by string, ok bool) {
	a = a.Unmap()
	if dev, ok := h.Configured(a); ok {
		return "address of " + dev, true
	}
	if by, ok := h.local[a]; ok {
		return by, true
	}
	for prefix, by := range h.wide {
		if prefix.Contains(a) {
			return by, true
		}
	}
	return "", false
}

// Check says whether an address may be a VIP by anyip. Loopback addresses are local anyway and may.
func (h *Host) Check(vip netip.Addr) error {
	vip = vip.Unmap()
	switch {
	case !vip.IsValid():
		return fmt.Errorf("invalid address %w", ErrNotUnicast)
	case vip.IsLoopback():
		return nil
	case vip.IsUnspecified():
		return fmt.Errorf("%s, the unspecified address, %w", vip, ErrNotUnicast)
	case vip.IsMulticast():
		return fmt.Errorf("%s, a multicast address, %w", vip, ErrNotUnicast)
	case vip.Zone() != "" || vip.Is6() && vip.IsLinkLocalUnicast():
		return fmt.Errorf("%s, a link-local address, %w", vip, ErrNotUnicast)
	case vip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s, the broadcast address, %w", vip, ErrNotUnicast)
	}
	if kind, ok := h.special[vip]; ok {
		return fmt.Errorf("%s, a %s address of this host's network, %w", vip, kind, ErrNotUnicast)
	}
	if dev, ok := h.Configured(vip); ok {
		return fmt.Errorf("%s %w (%s): use capture: bind or auto", vip, ErrHostAddress, dev)
	}
	if route, ok := h.gateways[vip]; ok {
		return fmt.Errorf("%s %w (%s)", vip, ErrGateway, route)
	}
	return nil
}

func routePrefix(r netlink.Route) (netip.Prefix, bool) {
	if r.Dst == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(r.Dst.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	bits, size := r.Dst.Mask.Size()
	if size == 32 {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, bits), true
}

// nextHops gives the gateways of a route of whatever shape.
func nextHops(r netlink.Route) (hops []netip.Addr) {
	add := func(ip net.IP, via netlink.Destination) {
		if v, ok := via.(*netlink.Via); ok && v != nil {
			ip = v.Addr
		}
		if a, ok := netip.AddrFromSlice(ip); ok && !a.IsUnspecified() {
			hops = append(hops, a.Unmap())
		}
	}
	add(r.Gw, r.Via)
	for _, hop := range r.MultiPath {
		add(hop.Gw, hop.Via)
	}
	return hops
}
