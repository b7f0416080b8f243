package main

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
	"github.com/baton-lb/baton/offload/bpf"
)

// Backends are listened for from the first service that has them until the last has gone, and its flows.
func TestPeers(t *testing.T) {
	s := store.New(store.Options{})
	source := s.Source("test")
	p := newPeers()
	service := func(name, vip string, client lb.ClientAddress, backends ...string) lb.Service {
		svc := lb.Default(name)
		svc.ClientAddress = client
		svc.Frontends = []lb.Frontend{
			{FrontendKey: lb.FrontendKey{Proto: flow.TCP, Address: netip.MustParseAddrPort(vip)}},
			{FrontendKey: lb.FrontendKey{Proto: flow.UDP, Address: netip.MustParseAddrPort(vip)}, ClientAddress: lb.Masked},
		}
		for _, b := range backends {
			svc.Backends = append(svc.Backends, lb.Backend{Address: netip.MustParseAddrPort(b), Weight: 1})
		}
		return svc
	}
	tcp := func(addrs ...string) (list []bpf.Peer) {
		for _, a := range addrs {
			list = append(list, bpf.Peer{Proto: flow.TCP, Address: netip.MustParseAddrPort(a)})
		}
		return list
	}
	const a, b, c = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
	const one, two = "10.96.0.1:80", "10.96.0.2:80"
	used := map[bpf.Peer]bool{}
	for _, tt := range []struct {
		name   string
		serve  []lb.Service
		used   []bpf.Peer
		added  []bpf.Peer
		all    []bpf.Peer
		unused []bpf.Peer
	}{
		{"who does not ask", []lb.Service{service("one", one, lb.Masked, a)}, nil, nil, nil, nil},
		{"who asks", []lb.Service{service("one", one, lb.Transparent, a, b)}, nil, tcp(a, b), tcp(a, b), nil},
		{"another with the same", []lb.Service{service("one", one, lb.Transparent, a, b), service("two", two, lb.Transparent, b, c)}, nil, tcp(c), tcp(a, b, c), nil},
		{"of two services still one's", []lb.Service{service("one", one, lb.Transparent, a), service("two", two, lb.Transparent, b, c)}, nil, nil, tcp(a, b, c), nil},
		{"it asks no more, and has flows", []lb.Service{service("one", one, lb.Transparent, a), service("two", two, lb.Masked, b, c)}, tcp(b), nil, tcp(a), tcp(c)},
		{"it asks again", []lb.Service{service("one", one, lb.Transparent, a), service("two", two, lb.Transparent, b, c)}, nil, tcp(c), tcp(a, b, c), nil},
		{"all are gone", nil, nil, nil, nil, tcp(a, b, c)},
	} {
		if err := source.Replace(tt.serve); err != nil {
			t.Fatal(err)
		}
		clear(used)
		for _, peer := range tt.used {
			used[peer] = true
		}
		added := p.follow([]string{"one", "two"}, s.Snapshot())
		unused := p.unused(func(p bpf.Peer) bool { return used[p] })
		p.forget(unused)
		all := p.all()
		for _, list := range [][]bpf.Peer{added, all, unused} {
			slices.SortFunc(list, func(a, b bpf.Peer) int { return a.Address.Compare(b.Address) })
		}
		if !slices.Equal(added, tt.added) || !slices.Equal(all, tt.all) || !slices.Equal(unused, tt.unused) {
			t.Errorf("%s: added %v, all %v, unused %v", tt.name, added, all, unused)
		}
	}
}

// BenchmarkPeers is what a change of one service costs among 5,000 with 100 backends each.
func BenchmarkPeers(b *testing.B) {
	s := store.New(store.Options{})
	all := make([]lb.Service, 5000)
	names := make([]string, len(all))
	for i := range all {
		svc := lb.Default(fmt.Sprintf("s%d", i))
		svc.ClientAddress = lb.Transparent
		svc.Frontends = []lb.Frontend{{FrontendKey: lb.FrontendKey{
			Proto: flow.TCP, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 80),
		}}}
		for j := range byte(100) {
			a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), j}), 80)
			svc.Backends = append(svc.Backends, lb.Backend{Address: a, Weight: 1})
		}
		all[i], names[i] = svc, svc.Name
	}
	if err := s.Source("test").Replace(all); err != nil {
		b.Fatal(err)
	}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			p := newPeers()
			if n := len(p.follow(names, s.Snapshot())); n != 500_000 {
				b.Fatalf("%d backends", n)
			}
		}
	})
	b.Run("one service", func(b *testing.B) {
		p := newPeers()
		p.follow(names, s.Snapshot())
		for b.Loop() {
			p.follow(names[:1], s.Snapshot())
		}
	})
}
