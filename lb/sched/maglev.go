package sched

import (
	"cmp"
	"math/bits"
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

// lookups is how often a client that met a full or tried backend is looked up
// again, hashed once more, before all backends are looked at. The entries beside
// its own will not do: permutations that resemble each other lie beside each
// other, and few backends would get what one leaves.
const lookups = 4

// maglev looks the client up (Eisenbud and others, NSDI 2016, section 3.4).
func (t *tier) maglev(client uint64, f filter) *Backend {
	if len(t.table) == 0 {
		return t.rendezvous(client, f)
	}
	for key, i := client, 0; i < lookups; key, i = mix(key+golden), i+1 {
		b := t.backends[t.table[scale(key, uint64(len(t.table)))]]
		if f.allows(b) {
			return b
		}
	}
	return t.rendezvous(client, f)
}

// hasTableOf reports whether the table of t is the one that u would get.
func (t *tier) hasTableOf(u *tier, size int) bool {
	return t != nil && len(t.table) == size && t.sameBackends(u)
}

// filler fills a table on behalf of one backend.
type filler struct {
	at, skip int    // the next entry it asks for, and the way to the one after
	gained   uint32 // towards the price of its next turn
}

// makeTable fills a table: in turns by weight every backend takes the next free
// entry of its own permutation of the table. backends[i] hashes to hashes[i].
func makeTable(backends []*Backend, hashes []uint64, size int) []uint16 {
	table, taken := make([]uint16, size), make([]bool, size)
	fillers, price := make([]filler, len(backends)), priceOf(backends)
	for i, h := range hashes {
		fillers[i] = filler{
			at:     int(scale(h, uint64(size))),
			skip:   1 + int(scale(mix(h+golden), uint64(size-1))),
			gained: price / 2, // shares are rounded to the nearest
		}
	}
	for filled := 0; ; {
		for i := range fillers {
			p := &fillers[i]
			p.gained += backends[i].share()
			for ; p.gained >= price; p.gained -= price {
				p.take(table, taken, uint16(i))
				if filled++; filled == size {
					return table
				}
			}
		}
	}
}

// priceOf is what a turn costs: about the mean weight, so that a round is about
// a turn for each, but a power of two, so that the others' turns hardly ever
// change their order when one backend comes or goes.
func priceOf(backends []*Backend) uint32 {
	total := uint64(0)
	for _, b := range backends {
		total += uint64(b.share())
	}
	return 1 << bits.Len64((total-1)/uint64(len(backends)))
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
