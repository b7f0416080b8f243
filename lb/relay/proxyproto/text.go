package proxyproto

import "net/netip"

// The scanners below read one field of a version 1 line and the byte that ends it, and return what follows. They judge
// byte by byte: a field that is cut off is ErrIncomplete only if it can still be completed.

// scanAddr reads an address of the family that the line names. (A func value would make b escape.)
func scanAddr(b []byte, ipv4 bool) (netip.Addr, []byte, error) {
	if ipv4 {
		return scanIPv4(b)
	}
	return scanIPv6(b)
}

// scanIPv4 reads four decimal numbers without leading zeros, and a space.
func scanIPv4(b []byte) (netip.Addr, []byte, error) {
	var a [4]byte
	field, digits, value := 0, 0, 0
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			if digits > 0 && value == 0 {
				return netip.Addr{}, nil, errAddress4
			}
			value = value*10 + int(c-'0')
			digits++
			if value > 255 {
				return netip.Addr{}, nil, errAddress4
			}
		case c == '.' && digits > 0 && field < 3:
			a[field] = byte(value)
			field, digits, value = field+1, 0, 0
		case c == ' ' && digits > 0 && field == 3:
			a[field] = byte(value)
			return netip.AddrFrom4(a), b[i+1:], nil
		default:
			return netip.Addr{}, nil, errAddress4
		}
	}
	return netip.Addr{}, nil, ErrIncomplete
}

// scanPort reads a decimal number without leading zeros up to 65535, and the byte that ends it.
func scanPort(b []byte, end byte) (uint16, []byte, error) {
	digits, value := 0, 0
	for i, c := range b {
		if c == end && digits > 0 {
			return uint16(value), b[i+1:], nil
		}
		if c < '0' || c > '9' || digits > 0 && value == 0 {
			return 0, nil, errPort
		}
		value = value*10 + int(c-'0')
		digits++
		if value > 65535 {
			return 0, nil, errPort
		}
	}
	return 0, nil, ErrIncomplete
}

// groups is an IPv6 address while it is read.
type groups struct {
	a       [16]byte
	n       int // groups in a
	gap     int // how many groups stand before the ::, -1 without one
	digits  int // digits of the group being read
	value   uint16
	started int // where that group starts in the text
}

// room says whether one more group may be written; a :: stands for one group at least.
func (g *groups) room() bool { return g.n < 7 || g.n == 7 && g.gap < 0 }

// put ends the group being read.
func (g *groups) put() {
	g.a[2*g.n], g.a[2*g.n+1] = byte(g.value>>8), byte(g.value)
	g.n, g.digits, g.value = g.n+1, 0, 0
}

// mapped says that ::ffff: was read, which alone may go on in dotted form.
func (g *groups) mapped() bool {
	return g.gap == 0 && g.n == 1 && g.a[0] == 0xff && g.a[1] == 0xff
}

// addr gives the finished address, and whether it has the right number of groups.
func (g *groups) addr() (netip.Addr, bool) {
	if g.gap < 0 {
		return netip.AddrFrom16(g.a), g.n == 8
	}
	var a [16]byte
	copy(a[:], g.a[:2*g.gap])
	copy(a[16-2*(g.n-g.gap):], g.a[2*g.gap:2*g.n])
	return netip.AddrFrom16(a), true
}

// scanIPv6 reads groups of hexadecimal digits with at most one ::, and a space.
func scanIPv6(b []byte) (netip.Addr, []byte, error) {
	g := groups{gap: -1}
	for i, c := range b {
		switch {
		case hex(c) >= 0:
			if !g.digit(uint16(hex(c)), i) {
				return netip.Addr{}, nil, errAddress6
			}
		case c == ':':
			if !g.colon(i) {
				return netip.Addr{}, nil, errAddress6
			}
		case c == '.' && g.digits > 0 && g.mapped():
			return scanIPv4Mapped(b[g.started:])
		case c == ' ':
			if g.digits > 0 {
				g.put()
			} else if i < 2 || b[i-2] != ':' { // ends with a single colon, or is empty
				return netip.Addr{}, nil, errAddress6
			}
			addr, ok := g.addr()
			if !ok {
				return netip.Addr{}, nil, errAddress6
			}
			return addr, b[i+1:], nil
		default:
			return netip.Addr{}, nil, errAddress6
		}
	}
	return netip.Addr{}, nil, ErrIncomplete
}

// digit takes a hexadecimal digit at position i; false if none may stand there.
func (g *groups) digit(d uint16, i int) bool {
	if g.digits == 4 || !g.room() {
		return false
	}
	if g.digits == 0 {
		if i == 1 && g.n == 0 && g.gap < 0 { // ":1"
			return false
		}
		g.started = i
	}
	g.value = g.value<<4 | d
	g.digits++
	return true
}

// colon takes a colon at position i; false if none may stand there.
func (g *groups) colon(i int) bool {
	if g.digits > 0 {
		g.put()
		// Another group or, if there was none yet, the second colon of a :: must be able to follow.
		return g.n <= 7 && (g.gap < 0 || g.n < 7)
	}
	if i == 0 {
		return true
	}
	if g.gap >= 0 {
		return false
	}
	g.gap = g.n
	return true
}

// scanIPv4Mapped reads the dotted part of ::ffff:192.0.2.1.
func scanIPv4Mapped(b []byte) (netip.Addr, []byte, error) {
	a, rest, err := scanIPv4(b)
	if err != nil && err != ErrIncomplete {
		err = errAddress6
	}
	return a, rest, err
}

// hex gives the value of a hexadecimal digit, -1 for any other byte.
func hex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
