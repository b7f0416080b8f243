package offload

import (
	"fmt"
	"strconv"
	"strings"
)

// portSet is a set of ports as net.ipv4.ip_local_reserved_ports lists them: a bit
// each.
type portSet [1 << 16 / 64]uint64

func (s *portSet) has(p uint16) bool { return s[p/64]&(1<<(p%64)) != 0 }
func (s *portSet) add(p uint16)      { s[p/64] |= 1 << (p % 64) }

func (s *portSet) addRange(first, last uint16) {
	for p := int(first); p <= int(last); p++ {
		s.add(uint16(p))
	}
}

func (s *portSet) union(t portSet) {
	for i := range s {
		s[i] |= t[i]
	}
}

func (s *portSet) remove(t portSet) {
	for i := range s {
		s[i] &^= t[i]
	}
}

func (s *portSet) empty() bool { return *s == portSet{} }

// overlap reports whether two sets share a port.
func (s *portSet) overlap(t portSet) bool {
	for i := range s {
		if s[i]&t[i] != 0 {
			return true
		}
	}
	return false
}

// parsePortSet reads a list as "8080,9000-9010".
func parsePortSet(text string) (s portSet, err error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		lo, hi, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			hi = lo
		}
		first, errFirst := strconv.ParseUint(lo, 10, 16)
		last, errLast := strconv.ParseUint(hi, 10, 16)
		if errFirst != nil || errLast != nil || first > last {
			return portSet{}, fmt.Errorf("list of ports: %q is neither a port nor a range of them", part)
		}
		s.addRange(uint16(first), uint16(last))
	}
	return s, nil
}

// String is the list that parsePortSet reads.
func (s *portSet) String() string {
	var b strings.Builder
	for p := 0; p < 1<<16; p++ {
		if !s.has(uint16(p)) {
			continue
		}
		first := p
		for p+1 < 1<<16 && s.has(uint16(p+1)) {
			p++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(first))
		if p > first {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(p))
		}
	}
	return b.String()
}
