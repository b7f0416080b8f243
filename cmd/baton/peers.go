package main

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
	"github.com/baton-lb/baton/offload/bpf"
)

// peers are the backends whose answers are to be delivered, counted by the services that have them: a change of one
// service is not to cost a look at half a million backends.
type peers struct {
	services map[string]*store.Service // as they were counted
	by       map[bpf.Peer]int          // how many of these have it
	gone     map[bpf.Peer]struct{}     // none has, and flows may
}

func newPeers() peers {
	return peers{services: make(map[string]*store.Service), by: make(map[bpf.Peer]int), gone: make(map[bpf.Peer]struct{})}
}

// follow counts the services as they are now, and lists the backends that are new.
func (p *peers) follow(names []string, now *store.Snapshot) (added []bpf.Peer) {
	for _, name := range names {
		before := p.services[name]
		s, ok := now.Service(name)
		if ok && asksForClients(s) {
			p.services[name] = s
			for peer := range peersOf(s) {
				if p.by[peer]++; p.by[peer] == 1 {
					added = p.appear(peer, added)
				}
			}
		} else {
			delete(p.services, name)
		}
		if before == nil {
			continue
		}
		for peer := range peersOf(before) {
			if p.by[peer]--; p.by[peer] == 0 {
				delete(p.by, peer)
				p.gone[peer] = struct{}{}
			}
		}
	}
	return added
}

func (p *peers) appear(peer bpf.Peer, added []bpf.Peer) []bpf.Peer {
	if _, back := p.gone[peer]; back {
		delete(p.gone, peer)
		return added
	}
	return append(added, peer)
}

// all lists the backends of all services.
func (p *peers) all() []bpf.Peer { return slices.Collect(maps.Keys(p.by)) }

// unused lists those that no service has and no flow uses.
func (p *peers) unused(used func(bpf.Peer) bool) (list []bpf.Peer) {
	for peer := range p.gone {
		if !used(peer) {
			list = append(list, peer)
		}
	}
	return list
}

// forget is for backends that are no longer delivered.
func (p *peers) forget(list []bpf.Peer) {
	for _, peer := range list {
		delete(p.gone, peer)
	}
}

// peersOf yields the backends of a service whose answers are to be delivered.
func peersOf(s *store.Service) iter.Seq[bpf.Peer] {
	return func(yield func(bpf.Peer) bool) {
		for _, proto := range protocolsThatAsk(s) {
			for _, b := range s.Pool {
				if !yield(bpf.Peer{Proto: proto, Address: b.Address}) {
					return
				}
			}
		}
	}
}

func asksForClients(s *store.Service) bool { return len(protocolsThatAsk(s)) > 0 }

// protocolsThatAsk lists those of a service's frontends that keep clients' addresses.
func protocolsThatAsk(s *store.Service) (protos []flow.Proto) {
	for _, f := range s.FrontendSet {
		if cmp.Or(f.ClientAddress, s.ClientAddress) == lb.Transparent && !slices.Contains(protos, f.Proto) {
			protos = append(protos, f.Proto)
		}
	}
	return protos
}
