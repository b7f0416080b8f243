package kube

import (
	"net/netip"
	"slices"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// survey is what is known of the endpoints of one family before any is used.
type survey struct {
	usable           bool // one can be used, from wherever
	ready            bool
	noNodes, noZones bool // one that is ready has no such hint
	forNode, forZone bool // one that is ready is meant for this node, or its zone
}

// Which nodes a hint means.
const (
	hereNodes uint8 = 1 << iota // it names nodes
	hereZones                   // it names zones
	hereNode                    // this node
	hereZone                    // this node's zone
)

// merge makes backends of the endpoints that serve a port, in all its slices.
// It also says for each family whether any of them is usable at all. An address
// that is in several slices is there several times: the store takes the best.
func (t *Translator) merge(e *entry, p *port) ([]lb.Backend, [3]bool) {
	var surveys [3]survey
	n := 0
	for _, s := range e.slices {
		if number := s.number(p); number != 0 {
			t.look(s, &surveys[s.family])
			n += len(s.Endpoints)
		}
	}
	list := make([]lb.Backend, 0, n)
	for _, s := range e.slices {
		if number := s.number(p); number != 0 {
			list = t.appendBackends(list, s, p.proto, number, &surveys[s.family])
		}
	}
	return list, [3]bool{lb.IPv4: surveys[lb.IPv4].usable, lb.IPv6: surveys[lb.IPv6].usable}
}

// number is the port number at which the endpoints of a slice serve a port; 0 =
// they do not. A port of a slice is told by name and protocol.
func (s *Slice) number(p *port) uint16 {
	for i := range s.Ports {
		if s.Ports[i].name == p.name && s.Ports[i].proto == p.proto {
			return s.Ports[i].port
		}
	}
	return 0
}

func (t *Translator) look(s *Slice, v *survey) {
	here := t.hintsHere(s)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		v.usable = v.usable || e.usable()
		if !e.ready {
			continue
		}
		h := here[e.hint]
		v.ready = true
		v.noNodes = v.noNodes || h&hereNodes == 0
		v.noZones = v.noZones || h&hereZones == 0
		v.forNode = v.forNode || h&hereNode != 0
		v.forZone = v.forZone || h&hereZone != 0
	}
}

// hintsHere reads the hints of a slice as seen from this node. The first is that
// of endpoints without. It is valid until the next call.
func (t *Translator) hintsHere(s *Slice) []uint8 {
	t.here = append(t.here[:0], 0)
	for _, h := range s.hints {
		var here uint8
		if len(h.nodes) > 0 {
			here |= hereNodes
		}
		if len(h.zones) > 0 {
			here |= hereZones
		}
		if slices.Contains(h.nodes, t.options.Node) {
			here |= hereNode
		}
		if slices.Contains(h.zones, t.node.Zone) {
			here |= hereZone
		}
		t.here = append(t.here, here)
	}
	return t.here
}

// follows is which hints are followed: those that every ready endpoint has, if
// one of them is meant for this node; nodes before zones. 0 = none are.
func (v *survey) follows() uint8 {
	switch {
	case v.ready && !v.noNodes && v.forNode:
		return hereNode
	case v.ready && !v.noZones && v.forZone:
		return hereZone
	}
	return 0
}

func (t *Translator) appendBackends(list []lb.Backend, s *Slice, proto flow.Proto, number uint16, v *survey) []lb.Backend {
	here, follows := t.hintsHere(s), v.follows()
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if proto == flow.UDP && !e.ready && !e.serving {
			continue // its sessions move, as if it had gone: their clients would not see that it is silent
		}
		list = append(list, lb.Backend{
			Address:     netip.AddrPortFrom(e.address, number),
			Weight:      1,
			Zone:        e.zone.Value(),
			Node:        e.node.Value(),
			Local:       t.hasNode(e),
			Far:         e.ready && here[e.hint]&follows != follows,
			NotServing:  !e.usable(),
			Terminating: e.terminating && !e.ready,
		})
	}
	return list
}
