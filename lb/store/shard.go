package store

import "slices"

// minSlots is the smallest size of a shard that has an entry.
const minSlots = 4

// shard is a hash table with open addressing and linear probing: a power of two
// of slots, or none. At most three of four are used.
type shard[K comparable, V keyed[K]] []slot[V]

// slot is free when v is the zero value.
type slot[V any] struct {
	hash uint64
	v    V
}

// clone copies the shard and counts its entries.
func (s shard[K, V]) clone() (c shard[K, V], used int) {
	var none V
	for i := range s {
		if s[i].v != none {
			used++
		}
	}
	return slices.Clone(s), used
}

// home is where an entry should be. The low bits of the hash have chosen the
// shard, so it is the high ones that count here.
func (s shard[K, V]) home(hash uint64) int { return int(hash>>32) & (len(s) - 1) }

// find returns the slot of k, or the free one where it belongs. There must be a
// free slot.
func (s shard[K, V]) find(hash uint64, k K) (i int, ok bool) {
	var none V
	for i = s.home(hash); ; i = (i + 1) & (len(s) - 1) {
		e := &s[i]
		if e.v == none {
			return i, false
		}
		if e.hash == hash && e.v.is(k) {
			return i, true
		}
	}
}

// grown is the shard with twice as many slots.
func (s shard[K, V]) grown() shard[K, V] {
	var none V
	g := make(shard[K, V], max(minSlots, 2*len(s)))
	for _, e := range s {
		if e.v == none {
			continue
		}
		i := g.home(e.hash)
		for g[i].v != none {
			i = (i + 1) & (len(g) - 1)
		}
		g[i] = e
	}
	return g
}

// remove frees the slot of k, if there is one, and moves the entries after it
// up, so that no search ends at a gap (Knuth, The Art of Computer Programming
// 3, 6.4, algorithm R).
func (s shard[K, V]) remove(hash uint64, k K) bool {
	gap, ok := s.find(hash, k)
	if !ok {
		return false
	}
	var none V
	mask := len(s) - 1
	for i := (gap + 1) & mask; s[i].v != none; i = (i + 1) & mask {
		home := s.home(s[i].hash)
		if (i-home)&mask >= (i-gap)&mask {
			s[gap] = s[i]
			gap = i
		}
	}
	s[gap] = slot[V]{}
	return true
}
