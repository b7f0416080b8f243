package capture

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Watch calls changed whenever addresses or devices of the namespace have changed, which can take a source hint or, with
// the loopback device, IPv6 routes away: Ensure with the same VIPs puts that right. It calls changed once at the
// beginning, and for a burst of changes several times; changed should only leave a note for whoever calls Ensure. Watch
// returns nil when ctx ends. What happens to routes otherwise is not watched, our own changes being most of it.
func (r *Routes) Watch(ctx context.Context, changed func()) error {
	var sock *nl.NetlinkSocket
	err := r.ns.do(func() (err error) {
		sock, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
		return err
	})
	if err != nil {
		return fmt.Errorf("watch addresses: %w", err)
	}
	return follow(ctx, sock, changed)
}
