package admin

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/baton-lb/baton/internal/flow"
)

// endpoint is one address filter: a range of addresses, and a port unless it is 0.
type endpoint struct {
	prefix netip.Prefix
	port   uint16
	proto  flow.Proto // 0 = any
}

func (e endpoint) matches(a netip.AddrPort) bool {
	return (e.port == 0 || e.port == a.Port()) && e.prefix.Contains(a.Addr().Unmap())
}

var errEndpoint = errors.New("want IP, CIDR or either with :PORT, as 10.0.0.1, 10.0.0.0/8:80, fd00::/8 or [fd00::1]:80")

// parseEndpoint reads "10.0.0.1", "10.0.0.1:80", "10.0.0.0/8", "10.0.0.0/8:80",
// "fd00::1", "[fd00::1]:80", "fd00::/8" and "[fd00::/8]:80".
func parseEndpoint(s string) (endpoint, error) {
	host, port, err := cutPort(s)
	if err != nil {
		return endpoint{}, err
	}
	p, err := parsePrefix(host)
	if err != nil {
		return endpoint{}, err
	}
	return endpoint{prefix: p, port: port}, nil
}

// cutPort splits a port off s, 0 when it has none. An IPv6 address has one only
// behind brackets.
func cutPort(s string) (host string, port uint16, err error) {
	host, digits := s, ""
	if rest, ok := strings.CutPrefix(s, "["); ok {
		inner, after, ok := strings.Cut(rest, "]")
		if !ok || after != "" && after[0] != ':' || !strings.Contains(inner, ":") {
			return "", 0, errEndpoint
		}
		host = inner
		if after == "" {
			return host, 0, nil
		}
		digits = after[1:]
	} else if strings.Count(s, ":") == 1 {
		host, digits, _ = strings.Cut(s, ":")
	} else {
		return host, 0, nil
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("port %q is not between 1 and 65535", digits)
	}
	return host, uint16(n), nil
}

// parsePrefix reads an address or a CIDR; host bits need not be 0.
func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, errEndpoint
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, errEndpoint
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, errEndpoint
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// parseFrontend is parseEndpoint with an optional protocol: "tcp://10.96.0.10:80".
func parseFrontend(s string) (endpoint, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return parseEndpoint(s)
	}
	proto, err := flow.ParseProto(scheme)
	if err != nil {
		return endpoint{}, err
	}
	e, err := parseEndpoint(rest)
	e.proto = proto
	return e, err
}
