// Package capture owns how packets for a VIP come to a socket of ours: the listening socket, and for an address that is
// not configured on the host the route that makes it local, with everything around it that must be undone again.
//
// There are three ways (Mode). With bind the address is configured on the host and a socket takes it. With anyip (AnyIP is
// the kernel's name for it) a route of type local points at the loopback device, and the kernel then delivers what comes
// for the VIP. With sklookup there is that route too, and a program in the kernel (the guard of package relay) gives the
// connections of all frontends to few sockets. Which frontend was meant is never derived from a listener; it comes from the connection's local address.
//
// # What it refuses to do
//
// It touches no address and no route of others: its own routes carry the protocol number RouteProtocol and the metric
// RouteMetric, stand in the table local, and only these are changed or removed. It takes no VIP that is an address of
// the host, a next hop of one of its routes, a broadcast, multicast, unspecified or link-local address. It answers for no
// VIP on the link: whoever announces VIPs (a router, BGP, an ARP speaker) is to stay the only one. It accepts nothing and
// runs no loop: descriptors are raw and non-blocking, for the relay's own epoll loops.
//
// # The source hint
//
// To a local destination the kernel connects from that very address unless told otherwise; a client on the host itself
// would show up as the VIP talking to itself. So a route names a source (RTA_PREFSRC): the address that the default route
// uses, else the first global one, else, for IPv4, one of narrower scope down to 127.0.0.1. For IPv6 without a global
// address there is no hint, and none is needed: the kernel chooses among configured addresses only (it takes ::1).
// When the address of the hint goes away, IPv6 forgets the hint and IPv4 goes on using an address that is gone; when the
// loopback device goes down the IPv6 routes go. Calling Ensure again repairs both; Routes.Watch says when.
//
// # What is read when
//
// A host has as many routes of ours as VIPs, and to read them all for each service that comes is most of what that service
// costs. Ensure does; Change believes what was read last (view.go) unless the kernel has said that somebody else changed an
// address, a device or a route since, or more than it could say, or a minute has passed.
//
// # ARP
//
// For IPv6 the kernel answers neighbour solicitations for configured addresses only. For IPv4 it answers ARP for
// whatever is local, and it puts the source of a packet, so the VIP, into its own ARP requests, from which others learn.
// Two sysctls stop that as long as there is an IPv4 route of ours: arp_ignore=3, "not for addresses of scope host", to
// which a VIP without an address counts, while every configured address goes on being answered on every device; and
// arp_announce=2, the best address of the outgoing device as the sender. The kernel uses the greater of the values under
// all and under the device, but a greater arp_ignore is not a stricter one: 1 and 2 already leave VIPs unanswered and
// are never raised. The values before are kept in a file, so that the next process or Cleanup can restore them.
//
// The price: AnyIP routes that others made are no longer answered either; Report.Warnings says so when there are any. The
// alternative, a table of our own behind rules by protocol ("ipproto tcp"), which ARP lookups do not match, would cost
// every packet of the host a rule lookup with flow dissection.
//
// # Locks
//
// Routes.mu is held over the kernel calls of one operation; the lock of the socket table (sockets.go) is a leaf.
//
// # Kernel
//
// Network namespace: that of the calling thread when Listen, Exposed, ReadHost or OpenRoutes is called; Routes stays with
// it. CAP_NET_ADMIN for routes and sysctls, CAP_NET_BIND_SERVICE for ports below 1024; a writable /proc/sys for ARP.
// Nothing here is newer than Linux 4.x.
package capture
