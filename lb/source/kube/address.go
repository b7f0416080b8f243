package kube

import (
	"fmt"
	"net/netip"
	"strings"
)

// parseAddr reads an address as Kubernetes does: IPv4 with leading zeros in its
// numbers, which the API has let through once, is decimal; IPv4-mapped is IPv4.
func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		a, err = netip.ParseAddr(withoutZeros(s))
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", s)
	}
	return a.Unmap(), nil
}

// parsePrefix reads IP/BITS as Kubernetes does.
func parsePrefix(s string) (netip.Prefix, error) {
	s = strings.TrimSpace(s)
	p, err := netip.ParsePrefix(s)
	if err != nil {
		p, err = netip.ParsePrefix(withoutZeros(s))
	}
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is not IP/BITS, as 192.0.2.0/24", s)
	}
	return p.Masked(), nil
}

// withoutZeros takes the leading zeros off the numbers of an IPv4 address.
func withoutZeros(s string) string {
	ip, bits, prefix := strings.Cut(s, "/")
	numbers := strings.Split(ip, ".")
	if len(numbers) != 4 {
		return s
	}
	for i, n := range numbers {
		if short := strings.TrimLeft(n, "0"); short != n {
			numbers[i] = short
			if short == "" {
				numbers[i] = "0"
			}
		}
	}
	ip = strings.Join(numbers, ".")
	if prefix {
		ip += "/" + bits
	}
	return ip
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// frontendProblem is why clients cannot be served at an address, or "".
func frontendProblem(a netip.Addr) string {
	switch {
	case a.IsUnspecified(), a.IsLoopback(), a.IsMulticast(), a == broadcast:
		return fmt.Sprintf("%s is not an address for clients of the network", a)
	case a.Zone() != "", a.Is6() && a.IsLinkLocalUnicast():
		return fmt.Sprintf("%s is of one link only, which is not supported", a)
	}
	return ""
}

// endpointProblem is why no endpoint can be at an address, or "". As the API
// has it: whoever can write a slice is not to reach what a node has for itself.
func endpointProblem(a netip.Addr) string {
	switch {
	case a.IsUnspecified(), a.IsLoopback(), a.IsMulticast(), a.IsLinkLocalUnicast(), a == broadcast:
		return fmt.Sprintf("%s cannot be the address of an endpoint", a)
	case a.Zone() != "":
		return fmt.Sprintf("%s has a zone, which is not supported", a)
	}
	return ""
}
