package file

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// maxSocketPath is what sun_path holds beside its closing NUL (unix(7)).
const maxSocketPath = 107

var adminFields = []field[Admin]{
	{"socket", func(d *decoder, n *node, a *Admin) { decodeSocket(d, n, &a.Socket) }},
	{"http", func(d *decoder, n *node, a *Admin) { decodeHTTP(d, n, &a.HTTP) }},
}

func decodeSocket(d *decoder, n *node, to *string) {
	s, ok := text(d, n)
	switch {
	case !ok:
	case s == "":
		d.fault(n, "is empty: the socket cannot be off")
	case s[0] == '@' || strings.ContainsRune(s, 0):
		d.fault(n, "%q is not a path: an abstract socket has no permissions", s)
	case len(s) > maxSocketPath:
		d.fault(n, "is longer than %d bytes, the most that a unix socket may have", maxSocketPath)
	default:
		*to = s
	}
}

func decodeHTTP(d *decoder, n *node, to *string) {
	s, ok := text(d, n)
	if !ok {
		return
	}
	if s != "" && !isListenAddress(s) {
		d.fault(n, "%q is not IP:PORT: write \"127.0.0.1:10249\", \":10249\" for every address, or \"\" for off", s)
		return
	}
	*to = s
}

func isListenAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err == nil || host == "" || host == "localhost"
}

func decodeCapture(d *decoder, n *node, to *Capture) {
	s, ok := text(d, n)
	switch c := Capture(s); {
	case !ok:
	case !slices.Contains(Captures, c):
		d.fault(n, "%q is unknown: use auto, sklookup, anyip or bind", s)
	default:
		*to = c
	}
}

var sourceFields = []field[SourceAddress]{
	{"addresses", func(d *decoder, n *node, s *SourceAddress) { decodeSourceAddresses(d, n, s) }},
	{"ports", func(d *decoder, n *node, s *SourceAddress) { decodePorts(d, n, &s.Ports) }},
}

func decodeSourceAddresses(d *decoder, n *node, s *SourceAddress) {
	seen := map[netip.Addr]int{}
	s.Addresses = decodeList(d, n, func(d *decoder, n *node, to *netip.Addr) {
		decodeAddr(d, n, to)
		switch first, dup := seen[*to]; {
		case !to.IsValid():
		case to.IsUnspecified() || to.IsMulticast():
			d.fault(n, "%s is no address to connect from", to)
		case dup:
			d.fault(n, "%s is listed already at line %d", to, first)
		default:
			seen[*to] = n.Line
		}
	})
}

// decodeAddr reads an IP address, IPv4-mapped unmapped.
func decodeAddr(d *decoder, n *node, to *netip.Addr) {
	s, ok := text(d, n)
	if !ok {
		return
	}
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		d.fault(n, "%q is not an IP address", s)
	case a.Zone() != "":
		d.fault(n, "%s has a zone, which is not supported", s)
	default:
		*to = a.Unmap()
	}
}

func decodePorts(d *decoder, n *node, to *PortRange) {
	s, ok := text(d, n)
	if !ok {
		return
	}
	lo, hi, _ := strings.Cut(s, "-")
	l, err1 := strconv.ParseUint(lo, 10, 16)
	h, err2 := strconv.ParseUint(hi, 10, 16)
	switch {
	case err1 != nil || err2 != nil || l == 0 || h == 0:
		d.fault(n, "%q is not a range of ports: write LOW-HIGH, between 1 and 65535, as 32768-60999", s)
	case l > h:
		d.fault(n, "%s begins above its end: %d-%d was meant", s, h, l)
	default:
		*to = PortRange{uint16(l), uint16(h)}
	}
}
