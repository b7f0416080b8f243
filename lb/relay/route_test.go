package relay

import (
	"net"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// prohibit makes connections to an address fail at once with EACCES.
func prohibit(t *testing.T, addr string) {
	t.Helper()
	ip := net.ParseIP(addr).To4()
	route := &netlink.Route{Type: unix.RTN_PROHIBIT, Dst: &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)}}
	if err := netlink.RouteAdd(route); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.RouteDel(route) })
}

// readProc reads a file of /proc/net in the test's namespace.
func readProc(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
