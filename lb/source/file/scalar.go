package file

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// kindOf names what a node is, for "is …, not …".
func kindOf(n *node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch tag := n.ShortTag(); tag {
	case "!!str":
		return "text"
	case "!!int":
		return "a number"
	case "!!float":
		return "a fraction"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "nothing"
	case "!!timestamp":
		return "a date"
	default:
		return "of the type " + tag
	}
}

// isScalar reports whether n is a single value of the type.
func isScalar(n *node, tag string) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == tag
}

// text reads a string; numbers and the like must be quoted.
func text(d *decoder, n *node) (string, bool) {
	switch {
	case isScalar(n, "!!str"):
		return n.Value, true
	case n.Kind == yaml.ScalarNode:
		d.fault(n, "is %s, not text: put it in quotes", kindOf(n))
	default:
		d.fault(n, "is %s, not text", kindOf(n))
	}
	return "", false
}

// word reads a string that is not empty, to be checked against its list by the model.
func word[T ~string](d *decoder, n *node, to *T) {
	switch s, ok := text(d, n); {
	case !ok:
	case s == "":
		d.fault(n, "is empty")
	default:
		*to = T(s)
	}
}

// printable reads a string without control characters, which may be empty.
func printable(d *decoder, n *node, to *string) {
	switch s, ok := text(d, n); {
	case !ok:
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		d.fault(n, "%q has a control character in it", s)
	default:
		*to = s
	}
}

// number reads a whole decimal number between lo and hi.
func number[T ~int | ~uint16](d *decoder, n *node, lo, hi int64, to *T) {
	if !isScalar(n, "!!int") && !isDigits(n) {
		hint := ""
		if _, err := strconv.ParseInt(n.Value, 10, 64); err == nil && isScalar(n, "!!str") {
			hint = ": write it without quotes"
		}
		d.fault(n, "is %s, not a whole number%s", kindOf(n), hint)
		return
	}
	switch v, ok := decimal(d, n); {
	case !ok:
	case v < lo || v > hi:
		d.fault(n, "%s is out of range: use %d to %d", n.Value, lo, hi)
	default:
		*to = T(v)
	}
}

// isDigits finds numbers so large that YAML takes them for fractions.
func isDigits(n *node) bool {
	return isScalar(n, "!!float") && strings.Trim(n.Value, "0123456789") == ""
}

// decimal reads plain digits. YAML's hexadecimal, underscores and octal with a
// leading zero would read differently from what they seem to say.
func decimal(d *decoder, n *node) (int64, bool) {
	digits := strings.TrimPrefix(n.Value, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" || (len(digits) > 1 && digits[0] == '0') {
		d.fault(n, "%q is not a plain decimal number", n.Value)
		return 0, false
	}
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil { // out of range: the nearest
		v = math.MaxInt64
		if n.Value[0] == '-' {
			v = math.MinInt64
		}
	}
	return v, true
}

// count reads a number of things, where 0 is allowed.
func count(d *decoder, n *node, to *int) { number(d, n, 0, math.MaxInt32, to) }

// duration reads "1h30m", "2s" or "500ms"; 0 needs no unit.
func duration(d *decoder, n *node, to *time.Duration) {
	const want = "write a number and its unit (h, m, s, ms), as 3h, 1m30s or 500ms"
	if isScalar(n, "!!int") && n.Value != "0" || isScalar(n, "!!float") {
		d.fault(n, "%s has no unit: write %ss for seconds", n.Value, n.Value)
		return
	}
	s := n.Value
	if !isScalar(n, "!!int") {
		var ok bool
		if s, ok = text(d, n); !ok {
			return
		}
	}
	v, err := time.ParseDuration(s)
	switch {
	case err != nil && strings.ContainsAny(s, "dw"):
		d.fault(n, "%q is not a duration: %s; a day is 24h", s, want)
	case err != nil:
		d.fault(n, "%q is not a duration: %s", s, want)
	case v < 0:
		d.fault(n, "%s is negative", s)
	default:
		*to = v
	}
}

// positive reads a duration that is longer than 0.
func positive(d *decoder, n *node, to *time.Duration) {
	v := time.Duration(-1)
	if duration(d, n, &v); v == 0 {
		d.fault(n, "%s is not longer than 0", n.Value)
	} else if v > 0 {
		*to = v
	}
}

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// size reads a number of bytes: 65536, "64KiB", "10MB".
func size(d *decoder, n *node, to *int64) {
	if !isScalar(n, "!!int") && !isScalar(n, "!!str") {
		d.fault(n, "is %s, not a size in bytes", kindOf(n))
		return
	}
	v, err := parseSize(n.Value)
	if err != nil {
		d.fault(n, "%s", err)
		return
	}
	*to = v
}

func parseSize(s string) (int64, error) {
	digits, unit := s, int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = rest, u.bytes
			break
		}
	}
	if digits == "" || strings.Trim(digits, "0123456789") != "" || (len(digits) > 1 && digits[0] == '0') {
		return 0, fmt.Errorf("%q is not a size: write bytes as 65536, 64KiB, 1MiB or 10MB", s)
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || v > math.MaxInt64/unit {
		return 0, fmt.Errorf("%s is larger than any size", s)
	}
	return v * unit, nil
}

// prefix reads "10.0.0.0/8", or a plain address as its /32 or /128.
func prefix(d *decoder, n *node, to *netip.Prefix) {
	s, ok := text(d, n)
	if !ok {
		return
	}
	p, err := parsePrefix(s)
	if err != nil {
		d.fault(n, "%s", err)
		return
	}
	*to = p
}

func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, fmt.Errorf("%q is not a CIDR: write 10.0.0.0/8, fd00::/8 or an address", s)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%q is IPv4 in IPv6 form: write it as IPv4", s)
	case p != p.Masked():
		return p, fmt.Errorf("%s has bits beyond its length: %s or %s was meant", s, p.Masked(),
			netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
	}
	return p, nil
}
