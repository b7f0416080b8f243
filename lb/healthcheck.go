package lb

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DefaultSlowStart is how long a backend that comes back takes to get its whole
// share, where the algorithm compares loads.
const DefaultSlowStart = 10 * time.Second

// maxDatagram is the largest payload of a UDP datagram over IPv4.
const maxDatagram = 65507

// SlowStart is how long a backend that comes back takes to get its whole share;
// 0 = it gets it at once. Unless Health says something else it is
// DefaultSlowStart for the algorithms that send new flows to whoever has the
// fewest, for a backend that comes back has none; others give it no more than
// its share.
func (s *Service) SlowStart() time.Duration {
	switch {
	case s.Health.SlowStart != 0:
		return max(0, s.Health.SlowStart)
	case s.Balance == LeastConnections, s.Balance == Random:
		return DefaultSlowStart
	}
	return 0
}

// StatusRanges is which HTTP status codes are good.
type StatusRanges [][2]int

// ParseStatusRanges reads "200-399" or "200,204,300-399".
func ParseStatusRanges(s string) (StatusRanges, error) {
	var all StatusRanges
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		l, okLo := statusCode(lo)
		h, okHi := statusCode(hi)
		switch {
		case !okLo || !okHi:
			return nil, fmt.Errorf("%q is not a list of HTTP status codes: write 200-399 or 200,204", s)
		case l > h:
			return nil, fmt.Errorf("%s begins above its end", part)
		}
		all = append(all, [2]int{l, h})
	}
	return all, nil
}

func statusCode(s string) (int, bool) {
	v, err := strconv.Atoi(s)
	return v, err == nil && len(s) == 3 && v >= 100 && v <= 599
}

// Has reports whether a status code is good.
func (r StatusRanges) Has(code int) bool {
	for _, in := range r {
		if in[0] <= code && code <= in[1] {
			return true
		}
	}
	return false
}

func (s *Service) validateHealth(f *faults) {
	h := &s.Health
	if h.Probe == NoProbe {
		return
	}
	if h.Interval <= 0 {
		f.add("health.interval", "%s is not longer than 0", h.Interval)
	}
	if h.Timeout <= 0 {
		f.add("health.timeout", "%s is not longer than 0", h.Timeout)
	}
	if h.Rise < 1 {
		f.add("health.rise", "%d is less than 1", h.Rise)
	}
	if h.Fall < 1 {
		f.add("health.fall", "%d is less than 1", h.Fall)
	}
	switch h.Probe {
	case ProbeHTTP:
		h.validateHTTP(f)
	case ProbeUDP:
		if len(h.Send) > maxDatagram {
			f.add("health.send", "%d bytes do not fit into a datagram", len(h.Send))
		}
	}
}

// validateHTTP keeps everything out of the request that would end its line.
func (h *HealthCheck) validateHTTP(f *faults) {
	notVisible := func(r rune) bool { return r <= ' ' || r == 0x7f }
	if !strings.HasPrefix(h.Path, "/") {
		f.add("health.path", "%q does not begin with /", h.Path)
	}
	if strings.ContainsFunc(h.Path, notVisible) {
		f.add("health.path", "%q has a space or a control character in it", h.Path)
	}
	if strings.ContainsFunc(h.Host, notVisible) {
		f.add("health.host", "%q has a space or a control character in it", h.Host)
	}
	if _, err := ParseStatusRanges(h.Status); err != nil {
		f.add("health.status", "%v", err)
	}
	if h.Send != "" {
		f.add("health.send", "is for tcp and udp: an http probe sends its request")
	}
}
