package file

import (
	"math"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/baton-lb/baton/lb"
)

var healthFields = []field[lb.HealthCheck]{
	{"probe", func(d *decoder, n *node, h *lb.HealthCheck) { word(d, n, &h.Probe) }},
	{"interval", func(d *decoder, n *node, h *lb.HealthCheck) { positive(d, n, &h.Interval) }},
	{"timeout", func(d *decoder, n *node, h *lb.HealthCheck) { positive(d, n, &h.Timeout) }},
	{"rise", func(d *decoder, n *node, h *lb.HealthCheck) { number(d, n, 1, math.MaxInt32, &h.Rise) }},
	{"fall", func(d *decoder, n *node, h *lb.HealthCheck) { number(d, n, 1, math.MaxInt32, &h.Fall) }},
	{"port", func(d *decoder, n *node, h *lb.HealthCheck) { number(d, n, 0, math.MaxUint16, &h.Port) }},
	{"path", func(d *decoder, n *node, h *lb.HealthCheck) { decodePath(d, n, &h.Path) }},
	{"host", func(d *decoder, n *node, h *lb.HealthCheck) { decodeHost(d, n, &h.Host) }},
	{"status", func(d *decoder, n *node, h *lb.HealthCheck) { decodeStatus(d, n, &h.Status) }},
	{"send", func(d *decoder, n *node, h *lb.HealthCheck) { payload(d, n, &h.Send) }},
	{"expect", func(d *decoder, n *node, h *lb.HealthCheck) { payload(d, n, &h.Expect) }},
	{"slowStart", func(d *decoder, n *node, h *lb.HealthCheck) { slowStart(d, n, &h.SlowStart) }},
}

// decodeHealth reads "none" or a map whose keys have the defaults of the
// documentation, probe: tcp among them.
func decodeHealth(d *decoder, n *node, to *lb.HealthCheck) {
	if isScalar(n, "!!str") && n.Value == none {
		*to = lb.HealthCheck{}
		return
	}
	h := *to
	if h.Probe == lb.NoProbe {
		h = lb.DefaultHealth(lb.ProbeTCP)
	}
	if decodeMap(d, n, healthFields, &h); h.Probe == none {
		h = lb.HealthCheck{SlowStart: h.SlowStart} // that of ejected backends
	}
	if n.Kind == yaml.MappingNode {
		*to = h
	}
}

// payload reads what is sent or awaited as it is, control characters and all.
func payload(d *decoder, n *node, to *string) {
	if s, ok := text(d, n); ok {
		*to = s
	}
}

// decodePath reads a request target in origin form (RFC 9112 section 3.2.1).
func decodePath(d *decoder, n *node, to *string) {
	s, ok := text(d, n)
	switch {
	case !ok:
	case !strings.HasPrefix(s, "/"):
		d.fault(n, "%q does not begin with /", s)
	case strings.ContainsFunc(s, notVisible):
		d.fault(n, "%q has a space or a control character in it", s)
	default:
		*to = s
	}
}

func decodeHost(d *decoder, n *node, to *string) {
	s, ok := text(d, n)
	switch {
	case !ok:
	case strings.ContainsFunc(s, notVisible):
		d.fault(n, "%q has a space or a control character in it", s)
	default:
		*to = s
	}
}

func notVisible(r rune) bool { return r <= ' ' || r == 0x7f }

// decodeStatus reads "200-399" or "200,204,300-399"; a single code may stand
// without quotes.
func decodeStatus(d *decoder, n *node, to *string) {
	s := n.Value
	if !isScalar(n, "!!int") {
		var ok bool
		if s, ok = text(d, n); !ok {
			return
		}
	}
	if _, err := lb.ParseStatusRanges(s); err != nil {
		d.fault(n, "%v", err)
		return
	}
	*to = s
}

// slowStart reads 0 as none, not as the model's 0 = by the algorithm.
func slowStart(d *decoder, n *node, to *time.Duration) {
	v := time.Duration(-1)
	if duration(d, n, &v); v == 0 {
		v = -1
	}
	*to = v
}
