package lb

import (
	"fmt"
	"iter"
	"net/netip"
	"strings"
)

// parseAddrPort reads IP:PORT with a port that is not 0, IPv4-mapped unmapped.
func parseAddrPort(s string) (netip.AddrPort, error) {
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not IP:PORT", s)
	}
	if ap.Port() == 0 {
		return netip.AddrPort{}, fmt.Errorf("%q has port 0", s)
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
}

// parseHost reads the IP of a URL, in brackets or not, IPv4-mapped unmapped.
func parseHost(s string) (netip.Addr, error) {
	if bare, ok := strings.CutPrefix(s, "["); ok {
		if s, ok = strings.CutSuffix(bare, "]"); !ok {
			return netip.Addr{}, fmt.Errorf("%q has one bracket only", s)
		}
	}
	a, err := netip.ParseAddr(s)
	return a.Unmap(), err
}

// hostOf writes the IP of a URL.
func hostOf(a netip.Addr) string {
	if a.Is4() {
		return a.String()
	}
	return "[" + a.String() + "]"
}

// withMore yields the address and further ones with its port.
func withMore(first netip.AddrPort, more []netip.Addr) iter.Seq[netip.AddrPort] {
	return func(yield func(netip.AddrPort) bool) {
		if !yield(first) {
			return
		}
		for _, a := range more {
			if !yield(netip.AddrPortFrom(a, first.Port())) {
				return
			}
		}
	}
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// addressProblem is what is wrong with an address of a frontend or a backend,
// or "".
func addressProblem(a netip.AddrPort) string {
	switch ip := a.Addr(); {
	case !a.IsValid() || a.Port() == 0:
		return fmt.Sprintf("%s is not IP:PORT with a port that is not 0", a)
	case ip.IsMulticast() || ip == broadcast:
		return fmt.Sprintf("%s is a multicast or broadcast address", ip)
	case ip.Is4In6():
		return fmt.Sprintf("%s is an IPv4 address in IPv6 clothes: write %s", ip, ip.Unmap())
	case ip.Zone() != "":
		return fmt.Sprintf("%s has a zone, which is not supported", ip)
	}
	return ""
}
