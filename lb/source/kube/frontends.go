package kube

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// frontends lists all that a port asks for. An address that is several things
// at once is the first of them: one that is both a balancer's and an external
// one keeps its source ranges.
func (t *Translator) frontends(p *port) []lb.Frontend {
	s := p.service
	l := frontendList{port: p}
	for _, a := range s.clusterIPs {
		l.add(a, p.port, t.internal(s, lb.FamilyOf(a)))
	}
	for _, a := range s.lbIPs {
		fe := t.external(s, lb.FamilyOf(a))
		fe.AllowSources = ofFamily(s.ranges, lb.FamilyOf(a))
		l.add(a, p.port, fe)
	}
	for _, a := range s.externalIPs {
		l.add(a, p.port, t.external(s, lb.FamilyOf(a)))
	}
	if p.nodePort == 0 {
		return l.list
	}
	for _, ip := range s.clusterIPs {
		for _, a := range t.nodePortAddresses(lb.FamilyOf(ip)) {
			l.add(a, p.nodePort, t.external(s, lb.FamilyOf(a)))
		}
	}
	return l.list
}

// frontendList collects the frontends of a port, each once.
type frontendList struct {
	port *port
	list []lb.Frontend
}

func (l *frontendList) add(a netip.Addr, number uint16, fe lb.Frontend) {
	fe.FrontendKey = lb.FrontendKey{Proto: l.port.proto, Address: netip.AddrPortFrom(a, number)}
	for i := range l.list {
		if l.list[i].FrontendKey == fe.FrontendKey {
			return
		}
	}
	fe.SameFamily = true
	if l.port.client() != "" {
		fe.ClientAddress, fe.KeepSources = "", nil
	}
	l.list = append(l.list, fe)
}

// internal is a frontend for clients of the cluster. Their addresses are kept; those
// of others, who have a route to it, are masked where we know who they are: they may
// be nearer to an endpoint than we are.
func (t *Translator) internal(s *Service, f lb.Family) lb.Frontend {
	fe := lb.Frontend{Subset: lb.NearBackends, ClientAddress: lb.Transparent, KeepSources: ofFamily(t.options.ClusterCIDRs, f)}
	if s.internalLocal {
		fe.Subset = lb.LocalBackends
	}
	return fe
}

// external is a frontend for clients from outside. By policy Cluster they are
// sent to other nodes, whose answers must come back here: their addresses are
// masked. By policy Local those of the cluster itself are served as by policy
// Cluster, for no balancer picks the right node for them.
func (t *Translator) external(s *Service, f lb.Family) lb.Frontend {
	if !s.externalLocal {
		return lb.Frontend{Subset: lb.NearBackends, ClientAddress: lb.Masked}
	}
	return lb.Frontend{
		Subset: lb.LocalBackends, ClientAddress: lb.Transparent,
		Inside: t.inside[f], InsideSubset: lb.NearBackends,
	}
}

// nodePortAddresses lists where node ports are served: at the wildcard address
// if nothing else was said for the family.
func (t *Translator) nodePortAddresses(f lb.Family) (list []netip.Addr) {
	all := netip.IPv4Unspecified()
	if f == lb.IPv6 {
		all = netip.IPv6Unspecified()
	}
	prefixes := ofFamily(t.options.NodePortAddresses, f)
	if len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		return []netip.Addr{all}
	}
	host := t.host
	if host == nil {
		host = append(slices.Clone(t.node.Addresses), netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	}
	for _, a := range host {
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) }) {
			list = appendNew(list, a)
		}
	}
	return list
}

func ofFamily(all []netip.Prefix, f lb.Family) (list []netip.Prefix) {
	for _, p := range all {
		if lb.FamilyOf(p.Addr()) == f {
			list = append(list, p)
		}
	}
	return list
}

// settle finds out which of the frontends that a port asks for it has, and what
// clients meet there when no backend may be used.
func (t *Translator) settle(p *port, usable [3]bool) {
	p.settled, p.usable = true, usable
	p.frontends = nil
	f := newFaults(kindService, &p.service.ObjectMeta, p.service.key)
	for _, fe := range t.frontends(p) {
		if o := t.claims.owner(fe.FrontendKey); o != p {
			f.add(p.path(), "%s", p.lost(fe.FrontendKey, o))
			continue
		}
		if fe.Subset == lb.LocalBackends && usable[lb.FamilyOf(fe.Address.Addr())] {
			fe.WhenNone = lb.Drop // there are some elsewhere
		}
		p.frontends = append(p.frontends, fe)
	}
	if len(p.frontends) > 0 {
		s := t.service(p)
		p.refuse(s.Validate(), &f)
		if p.service.policies.mode == ModeSteer && s.Unsteered {
			f.add(annotationPath(annotationMode), "port %s cannot be steered (%s): it is proxied", p.title(), s.NotSteerable())
		}
	}
	p.faults = f.all()
}

// lost says who has a frontend that a port asks for.
func (p *port) lost(k lb.FrontendKey, owner *port) string {
	if owner.service == p.service {
		return fmt.Sprintf("%s is that of port %s already", k, owner.title())
	}
	return fmt.Sprintf("%s is that of Service %s, port %s", k, owner.service.key, owner.title())
}

// refuse leaves a port out that the model does not allow, such as one of a
// protocol that is not built yet.
func (p *port) refuse(err error, f *faults) {
	if err == nil {
		return
	}
	p.frontends = nil
	var said []string
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		problem := e.Error()
		if field := (*lb.FieldError)(nil); errors.As(e, &field) {
			problem = field.Problem
		}
		if !slices.Contains(said, problem) { // of each frontend
			said = append(said, problem)
			f.add(p.path(), "port %s is not served: %s", p.title(), problem)
		}
	}
}

// title is the port's name, or its number.
func (p *Port) title() string {
	if p.name == "" {
		return fmt.Sprint(p.port)
	}
	return strconv.Quote(p.name)
}

func (p *Port) path() string { return fmt.Sprintf("spec.ports[%d]", p.index) }

// service is a port as a service, without backends.
func (t *Translator) service(p *port) lb.Service {
	s := lb.Default(p.Service)
	s.Frontends = p.frontends
	p.service.policies.apply(&s)
	if c := p.client(); c != "" {
		s.ClientAddress = c
	}
	t.modeOf(p).decide(&s)
	return s
}

// client is what the Service asks for in place of what its frontends do
// otherwise, if the port can have it.
func (p *port) client() lb.ClientAddress {
	if c := p.service.policies.client; c != lb.ProxyV1 || p.proto == flow.TCP {
		return c
	}
	return ""
}
