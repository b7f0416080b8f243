package sched

import (
	"cmp"
	"slices"
)

// tableSizes are the sizes of Maglev tables: each the largest prime below a
// power of two. A table has the smallest one that is at least perBackend times
// the number of listed backends, whether they can be used now or not, so that
// one that fails does not change the size and with it every choice.
var tableSizes = []int{
	251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071, 262139, 524287, 1048573, 2097143, 4194301, 8388593,
}

const (
	perBackend = 100
	maxInTable = 1 << 16 // an entry is a uint16
)

// tableSize is the size for that many listed backends, 0 when they are too many
// for a table.
func tableSize(listed int) int {
	if listed > maxInTable {
		return 0
	}
	i, _ := slices.BinarySearch(tableSizes, perBackend*listed)
	return tableSizes[i]
}

// sortByHash brings backends into an order that does not depend on the list.
func sortByHash(backends []*Backend) {
	slices.SortStableFunc(backends, func(a, b *Backend) int {
		if c := cmp.Compare(hashAddrPort(a.Address), hashAddrPort(b.Address)); c != 0 {
			return c
		}
		return a.Address.Compare(b.Address)
	})
}

// maglev looks the client up (Eisenbud and others, NSDI 2016, section 3.4). From
// a backend that cannot take the flow it goes on through the table.
func (t *tier) maglev(client uint64, f filter) *Backend {
	if len(t.table) == 0 {
		return t.rendezvous(client, f)
	}
	at := int(scale(client, uint64(len(t.table))))
	for _, part := range [2][]uint16{t.table[at:], t.table[:at]} {
		for _, i := range part {
			if b := t.backends[i]; f.allows(b) {
				return b
			}
		}
	}
	for _, b := range t.backends { // one whose weight gave it no entry
		if f.allows(b) {
			return b
		}
	}
	return nil
}

// hasTableOf reports whether the table of t is the one that u would get.
func (t *tier) hasTableOf(u *tier, size int) bool {
	return t != nil && len(t.table) == size && t.sameBackends(u)
}

// filler fills a table on behalf of one backend.
type filler struct {
	at, skip int    // the next entry it asks for, and the way to the one after
	gained   uint64 // towards its next turn
}

// makeTable fills a table: in turns by weight every backend takes the next free
// entry of its own permutation of the table.
func makeTable(backends []*Backend, size int) []uint16 {
	table, taken := make([]uint16, size), make([]bool, size)
	fillers, total := make([]filler, len(backends)), uint64(0)
	for i, b := range backends {
		h := hashAddrPort(b.Address)
		fillers[i].at = int(scale(h, uint64(size)))
		fillers[i].skip = 1 + int(scale(mix(h+golden), uint64(size-1)))
		total += uint64(b.Weight)
	}
	for i := range fillers {
		fillers[i].gained = total / 2 // shares are rounded to the nearest
	}
	for filled := 0; ; {
		for i := range fillers {
			p := &fillers[i]
			p.gained += uint64(backends[i].Weight) * uint64(len(backends))
			for ; p.gained >= total; p.gained -= total {
				p.take(table, taken, uint16(i))
				if filled++; filled == size {
					return table
				}
			}
		}
	}
}

// take takes the next free entry. There must be one.
func (p *filler) take(table []uint16, taken []bool, who uint16) {
	for taken[p.at] {
		if p.at += p.skip; p.at >= len(table) {
			p.at -= len(table)
		}
	}
	taken[p.at] = true
	table[p.at] = who
}
