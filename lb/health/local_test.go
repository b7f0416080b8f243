package health

import (
	"net/netip"
	"testing"
)

func TestLocal(t *testing.T) {
	v4 := netip.MustParseAddrPort("10.0.0.1:80")
	v6 := netip.MustParseAddrPort("[fd00::1]:80")
	addresses := []netip.Addr{
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1"),
	}
	for _, c := range []struct {
		name        string
		addresses   []netip.Addr
		first, last uint16
		to          netip.AddrPort
		addrs       int
		ports       bool
	}{
		{"all the kernel's choice", nil, 0, 0, v4, 0, false},
		{"IPv4 addresses in turn", addresses, 0, 0, v4, 2, false},
		{"IPv6", addresses, 0, 0, v6, 1, false},
		{"no address of that family", addresses[:2], 40000, 40003, v6, 0, true},
		{"the whole range", nil, 1, 65535, v4, 0, true},
		{"one port", nil, 40000, 40000, v4, 0, true},
	} {
		local := Local(c.addresses, c.first, c.last)
		addrs := make(map[netip.Addr]bool)
		for range 100 {
			got := local(c.to)
			if got.Addr().IsValid() {
				addrs[got.Addr()] = true
			}
			if in := got.Port() >= c.first && got.Port() <= c.last && got.Port() > 0; in != c.ports {
				t.Errorf("%s: port %d", c.name, got.Port())
			}
		}
		if len(addrs) != c.addrs {
			t.Errorf("%s: addresses %v, want %d", c.name, addrs, c.addrs)
		}
	}
}
