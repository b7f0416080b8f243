package capture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Addresses reads the addresses that are configured in the calling thread's namespace. VIPs that are local by a route are
// none.
func Addresses() (map[netip.Addr]struct{}, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("read this host's addresses: %w", err)
	}
	addrs := make(map[netip.Addr]struct{}, len(all))
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				addrs[addr.Unmap()] = struct{}{}
			}
		}
	}
	return addrs, nil
}

// WatchAddresses calls changed whenever addresses of the calling thread's namespace may have changed, once at the
// beginning, and for a burst of changes several times. It returns nil when ctx ends.
func WatchAddresses(ctx context.Context, changed func()) error {
	sock, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return fmt.Errorf("watch addresses: %w", err)
	}
	return follow(ctx, sock, changed)
}

// follow calls changed for whatever comes from a socket, which it closes.
func follow(ctx context.Context, sock *nl.NetlinkSocket, changed func()) error {
	defer sock.Close()
	stop := context.AfterFunc(ctx, sock.Close)
	defer stop()
	changed() // between the last look and now
	for {
		_, _, err := sock.Receive()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("watch addresses: %w", err)
		}
		changed()
	}
}
