package sched

import (
	"net/netip"
	"testing"

	"github.com/baton-lb/baton/lb"
)

// The table leads where Pick does, for Maglev, and to each backend by its weight for the others.
func TestConsistent(t *testing.T) {
	backends := func() (list []*Backend) {
		for i := range 5 {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)
			list = append(list, &Backend{Backend: &lb.Backend{Address: at, Weight: uint16(1 + i%2)}})
		}
		return list
	}
	maglev := New(lb.Maglev, backends(), Options{})
	table := maglev.Consistent()
	for i := range 2000 {
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), uint16(1024+i))
		want, err := maglev.Pick(Request{Client: client})
		if got := table[scale(hashAddrPort(client), uint64(len(table)))]; err != nil || got.Address != want.Address {
			t.Fatalf("%s: the table has %s, Pick %s (%v)", client, got.Address, want.Address, err)
		}
	}
	for _, a := range []lb.Algorithm{lb.RoundRobin, lb.LeastConnections, lb.Random, lb.SourceHash} {
		share := map[netip.AddrPort]int{}
		table := New(a, backends(), Options{}).Consistent()
		for _, b := range table {
			share[b.Address]++
		}
		for _, b := range backends() {
			want := len(table) * int(b.Weight) / 7
			if n := share[b.Address]; n < want*9/10 || n > want*11/10 {
				t.Errorf("%s: %s has %d of %d entries, want some %d", a, b.Address, n, len(table), want)
			}
		}
	}
	if got := New(lb.RoundRobin, nil, Options{}).Consistent(); got != nil {
		t.Errorf("out of nothing: %v", got)
	}
}
