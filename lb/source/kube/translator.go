package kube

import (
	"net/netip"
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/baton-lb/baton/lb"
)

// Options configures a Translator. The zero value works.
type Options struct {
	Node              string         // this node's name; "" = no endpoint is on it
	NodePortAddresses []netip.Prefix // which of the host's addresses serve node ports; none of a family = all of it
	ClusterCIDRs      []netip.Prefix // of all pods; empty = what the Node says of its own
	Mode              Mode           // of Services that do not say it; "" = ModeProxy
}

// Translator makes services out of Services and slices. What it is given is not
// translated before it is asked for what has changed: Take. It is not safe for
// concurrent use.
type Translator struct {
	options Options
	name    unique.Handle[string] // of this node
	node    *Node
	host    []netip.Addr // nil = what the Node says
	inside  [3][]netip.Prefix

	entries map[string]*entry // by "namespace/name" of the Service
	slices  map[types.NamespacedName]*Slice
	claims  claims

	dirty    []*entry
	touched  map[types.NamespacedName]struct{} // slices whose faults may have changed
	standing map[Object][]Fault                // that have been told
	here     []uint8                           // scratch of merge
}

// NewTranslator makes one that knows of no object yet.
func NewTranslator(o Options) *Translator {
	t := &Translator{
		options:  o,
		name:     unique.Make(o.Node),
		node:     &Node{},
		entries:  make(map[string]*entry),
		slices:   make(map[types.NamespacedName]*Slice),
		claims:   newClaims(),
		touched:  make(map[types.NamespacedName]struct{}),
		standing: make(map[Object][]Fault),
	}
	t.findInside()
	return t
}

// SetService adds or updates a Service.
func (t *Translator) SetService(s *Service) {
	e := t.entry(keyOf(s.Namespace, s.Name))
	t.release(e)
	e.service, e.object = s, Object{kindService, s.Namespace, s.Name}
	t.claim(e)
	t.mark(e)
}

// DeleteService forgets a Service.
func (t *Translator) DeleteService(namespace, name string) {
	e := t.entries[keyOf(namespace, name)]
	if e == nil || e.service == nil {
		return
	}
	t.release(e)
	e.service = nil
	t.mark(e)
}

// SetSlice adds or updates a slice. One that says what it said before is no
// change. One whose Service is unknown is kept: the two may come in any order.
func (t *Translator) SetSlice(s *Slice) {
	name := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	old := t.slices[name]
	if s.Service == "" {
		t.dropSlice(name, old)
		return
	}
	t.slices[name] = s
	if len(s.faults) > 0 || old != nil && len(old.faults) > 0 {
		t.touched[name] = struct{}{}
	}
	e := t.entry(s.Service)
	if at := slices.Index(e.slices, old); old != nil && at >= 0 {
		e.slices[at] = s
		if old.says(s) {
			return
		}
	} else {
		t.leave(old)
		e.slices = append(e.slices, s)
	}
	if !s.Trigger.IsZero() {
		e.triggers = append(e.triggers, s.Trigger)
	}
	t.mark(e)
}

// DeleteSlice forgets a slice.
func (t *Translator) DeleteSlice(namespace, name string) {
	n := types.NamespacedName{Namespace: namespace, Name: name}
	t.dropSlice(n, t.slices[n])
}

func (t *Translator) dropSlice(name types.NamespacedName, s *Slice) {
	if s == nil {
		return
	}
	delete(t.slices, name)
	if len(s.faults) > 0 {
		t.touched[name] = struct{}{}
	}
	t.leave(s)
}

// leave takes a slice from its Service.
func (t *Translator) leave(s *Slice) {
	if s == nil {
		return
	}
	e := t.entry(s.Service)
	if at := slices.Index(e.slices, s); at >= 0 {
		e.slices = slices.Delete(e.slices, at, at+1)
	}
	t.mark(e)
}

// SetNode says what node this is.
func (t *Translator) SetNode(n *Node) {
	old := t.node
	t.node = n
	switch {
	case old.says(n):
	case slices.Equal(old.PodCIDRs, n.PodCIDRs) && slices.Equal(old.Addresses, n.Addresses):
		for _, e := range t.entries { // another zone
			t.mark(e)
		}
	default:
		t.findInside()
		t.claimAll()
	}
}

// SetHost says which addresses this host has; until then they are those of the
// Node, and the loopback ones. They matter to Options.NodePortAddresses only.
func (t *Translator) SetHost(addresses []netip.Addr) {
	if slices.Equal(t.host, addresses) {
		return
	}
	t.host = slices.Clone(addresses)
	if len(t.options.NodePortAddresses) > 0 {
		t.claimAll()
	}
}

// SetNodePortAddresses says which of the host's addresses serve node ports, as
// Options.NodePortAddresses does at first.
func (t *Translator) SetNodePortAddresses(prefixes []netip.Prefix) {
	if slices.Equal(t.options.NodePortAddresses, prefixes) {
		return
	}
	t.options.NodePortAddresses = prefixes
	t.claimAll()
}

// claimAll makes the frontends of all Services anew.
func (t *Translator) claimAll() {
	for _, e := range t.entries {
		t.release(e)
		t.claim(e)
		t.mark(e)
	}
}

// mark has an entry translated by the next Take.
func (t *Translator) mark(e *entry) {
	if !e.dirty {
		e.dirty = true
		t.dirty = append(t.dirty, e)
	}
}

// findInside lists the clients inside, by family.
func (t *Translator) findInside() {
	loopback := []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8),
		netip.PrefixFrom(netip.IPv6Loopback(), 128),
	}
	pods := t.options.ClusterCIDRs
	if len(pods) == 0 {
		pods = t.node.PodCIDRs
	}
	t.inside = [3][]netip.Prefix{}
	for _, p := range slices.Concat(loopback, pods) {
		f := lb.FamilyOf(p.Addr())
		t.inside[f] = append(t.inside[f], p)
	}
}

// hasNode reports whether an endpoint is on this node.
func (t *Translator) hasNode(e *Endpoint) bool { return t.options.Node != "" && e.node == t.name }

// claim makes the ports of an entry's Service, and asks for their frontends.
func (t *Translator) claim(e *entry) {
	if e.service == nil {
		return
	}
	e.ports = make([]*port, len(e.service.Ports))
	for i := range e.ports {
		p := &port{Port: &e.service.Ports[i], entry: e, service: e.service}
		e.ports[i] = p
		for _, fe := range t.frontends(p) {
			p.keys = append(p.keys, fe.FrontendKey)
			t.unsettle(t.claims.add(fe.FrontendKey, p))
		}
	}
}

// release gives back the frontends of an entry.
func (t *Translator) release(e *entry) {
	for _, p := range e.ports {
		for _, k := range p.keys {
			t.unsettle(t.claims.remove(k, p))
		}
	}
	e.ports = nil
}

// unsettle has ports find out anew which of their frontends they have.
func (t *Translator) unsettle(ports []*port) {
	for _, p := range ports {
		p.settled = false
		t.mark(p.entry)
	}
}

// entry returns that of a Service, new or not.
func (t *Translator) entry(key string) *entry {
	e := t.entries[key]
	if e == nil {
		e = &entry{key: key}
		t.entries[key] = e
	}
	return e
}
