package file

import (
	"net/netip"

	"go.yaml.in/yaml/v3"

	"github.com/baton-lb/baton/lb"
)

// policyFields are the keys of a service that defaults may have too.
var policyFields = []field[service]{
	{"mode", func(d *decoder, n *node, s *service) { word(d, n, &s.Mode) }},
	{"balance", func(d *decoder, n *node, s *service) { word(d, n, &s.Balance) }},
	{"affinity", func(d *decoder, n *node, s *service) { decodeAffinity(d, n, &s.Affinity) }},
	{"health", func(d *decoder, n *node, s *service) { decodeHealth(d, n, &s.Health) }},
	{"clientAddress", func(d *decoder, n *node, s *service) { word(d, n, &s.ClientAddress) }},
	{"acceptProxy", func(d *decoder, n *node, s *service) { s.AcceptProxy = prefixes(d, n) }},
	{"allow", func(d *decoder, n *node, s *service) { s.Allow = prefixes(d, n) }},
	{"deny", func(d *decoder, n *node, s *service) { s.Deny = prefixes(d, n) }},
	{"onBackendRemoved", func(d *decoder, n *node, s *service) { word(d, n, &s.OnBackendRemoved) }},
	{"drainTimeout", func(d *decoder, n *node, s *service) { duration(d, n, &s.DrainTimeout) }},
	{"timeouts", func(d *decoder, n *node, s *service) { decodeMap(d, n, timeoutFields, &s.Timeouts) }},
	{"offload", func(d *decoder, n *node, s *service) { decodeMap(d, n, offloadFields, &s.Offload) }},
	{"limits", func(d *decoder, n *node, s *service) { decodeMap(d, n, limitFields, &s.Limits) }},
	{"steer", func(d *decoder, n *node, s *service) { decodeMap(d, n, steerFields, &s.Steer) }},
	{"sctp", func(d *decoder, n *node, s *service) { decodeMap(d, n, sctpFields, &s.SCTP) }},
}

// defaultFields are the keys of defaults, and those that have no place there.
var defaultFields = append([]field[service]{
	{"name", notDefault}, {"frontends", notDefault}, {"backends", notDefault},
}, policyFields...)

func notDefault(d *decoder, n *node, _ *service) {
	d.fault(n, "is not for defaults: each service has its own")
}

// serviceFields are all keys of a service.
var serviceFields = append([]field[service]{
	{"name", func(d *decoder, n *node, s *service) { word(d, n, &s.Name) }},
	{"frontends", func(d *decoder, n *node, s *service) { s.Frontends = decodeList(d, n, decodeFrontend) }},
	{"backends", func(d *decoder, n *node, s *service) { s.Backends = decodeList(d, n, decodeBackend) }},
}, policyFields...)

func decodeFrontend(d *decoder, n *node, to *lb.Frontend) {
	s, ok := text(d, n)
	if !ok {
		return
	}
	f, err := lb.ParseFrontend(s)
	if err != nil {
		d.fault(n, "%s", err)
		return
	}
	*to = f
}

func prefixes(d *decoder, n *node) []netip.Prefix { return decodeList(d, n, prefix) }

var timeoutFields = []field[lb.Timeouts]{
	{"connect", func(d *decoder, n *node, t *lb.Timeouts) { duration(d, n, &t.Connect) }},
	{"idle", func(d *decoder, n *node, t *lb.Timeouts) { duration(d, n, &t.Idle) }},
	{"halfClosed", func(d *decoder, n *node, t *lb.Timeouts) { duration(d, n, &t.HalfClosed) }},
	{"udpIdle", func(d *decoder, n *node, t *lb.Timeouts) { duration(d, n, &t.UDPIdle) }},
	{"keepalive", func(d *decoder, n *node, t *lb.Timeouts) { duration(d, n, &t.KeepAlive) }},
	{"peerLost", func(d *decoder, n *node, t *lb.Timeouts) { duration(d, n, &t.PeerLost) }},
}

var offloadFields = []field[lb.Offload]{
	{"mode", func(d *decoder, n *node, o *lb.Offload) { word(d, n, &o.Mode) }},
	{"path", func(d *decoder, n *node, o *lb.Offload) { word(d, n, &o.Path) }},
	{"afterBytes", func(d *decoder, n *node, o *lb.Offload) { size(d, n, &o.AfterBytes) }},
	{"afterAge", func(d *decoder, n *node, o *lb.Offload) { duration(d, n, &o.AfterAge) }},
}

var limitFields = []field[lb.Limits]{
	{"connections", func(d *decoder, n *node, l *lb.Limits) { count(d, n, &l.Connections) }},
	{"perClient", func(d *decoder, n *node, l *lb.Limits) { count(d, n, &l.PerClient) }},
	{"newPerSecond", func(d *decoder, n *node, l *lb.Limits) { count(d, n, &l.NewPerSecond) }},
	{"udpSessions", func(d *decoder, n *node, l *lb.Limits) { count(d, n, &l.UDPSessions) }},
}

var steerFields = []field[lb.Steer]{
	{"choose", func(d *decoder, n *node, s *lb.Steer) { word(d, n, &s.Choose) }},
	{"whenAbsent", func(d *decoder, n *node, s *lb.Steer) { word(d, n, &s.WhenAbsent) }},
}

var sctpFields = []field[lb.SCTP]{
	{"mode", func(d *decoder, n *node, s *lb.SCTP) { word(d, n, &s.Mode) }},
	{"multihoming", func(d *decoder, n *node, s *lb.SCTP) { word(d, n, &s.Multihoming) }},
}

// none switches affinity or a health check off where defaults switch it on.
const none = "none"

var affinityFields = []field[lb.Affinity]{
	{"by", func(d *decoder, n *node, a *lb.Affinity) { word(d, n, &a.By) }},
	{"timeout", func(d *decoder, n *node, a *lb.Affinity) { positive(d, n, &a.Timeout) }},
}

// decodeAffinity reads "none" or a map whose keys have the defaults of the
// documentation, by: client-ip among them.
func decodeAffinity(d *decoder, n *node, to *lb.Affinity) {
	if isScalar(n, "!!str") && n.Value == none {
		*to = lb.Affinity{}
		return
	}
	a := *to
	if a.By == lb.NoAffinity {
		a = lb.Affinity{By: lb.ByClientIP, Timeout: lb.DefaultAffinityTimeout}
	}
	if decodeMap(d, n, affinityFields, &a); a.By == none {
		a = lb.Affinity{}
	}
	if n.Kind == yaml.MappingNode {
		*to = a
	}
}
