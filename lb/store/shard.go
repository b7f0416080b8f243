package store

import "slices"

// minSlots is the smallest size of a shard that has an entry.
const minSlots = 4

// shard is a hash table with open addressing and linear probing. At most three
// of four slots are used.
type shard[K comparable, V keyed[K]] struct {
	slots []slot[V] // a power of two of them, or none
	used  int
}

// slot is free when v is the zero value.
type slot[V any] struct {
	hash uint64
	v    V
}

// clone copies the shard; a nil one becomes an empty one.
func (s *shard[K, V]) clone() *shard[K, V] {
	if s == nil {
		return &shard[K, V]{}
	}
	return &shard[K, V]{slices.Clone(s.slots), s.used}
}

// home is where an entry should be. The low bits of the hash have chosen the
// shard, so it is the high ones that count here.
func (s *shard[K, V]) home(hash uint64) int { return int(hash>>32) & (len(s.slots) - 1) }

// find returns the slot of k, or the free one where it belongs. There must be a
// free slot.
func (s *shard[K, V]) find(hash uint64, k K) (i int, ok bool) {
	var none V
	for i = s.home(hash); ; i = (i + 1) & (len(s.slots) - 1) {
		e := &s.slots[i]
		if e.v == none {
			return i, false
		}
		if e.hash == hash && e.v.is(k) {
			return i, true
		}
	}
}

func (s *shard[K, V]) get(hash uint64, k K) (v V, ok bool) {
	if s.used == 0 {
		return v, false
	}
	i, ok := s.find(hash, k)
	return s.slots[i].v, ok
}

func (s *shard[K, V]) put(hash uint64, k K, v V) {
	if 4*(s.used+1) > 3*len(s.slots) {
		s.grow()
	}
	i, ok := s.find(hash, k)
	s.slots[i] = slot[V]{hash, v}
	if !ok {
		s.used++
	}
}

func (s *shard[K, V]) grow() {
	var none V
	old := s.slots
	s.slots = make([]slot[V], max(minSlots, 2*len(old)))
	for _, e := range old {
		if e.v == none {
			continue
		}
		i := s.home(e.hash)
		for s.slots[i].v != none {
			i = (i + 1) & (len(s.slots) - 1)
		}
		s.slots[i] = e
	}
}

// remove frees the slot of k and moves the entries after it up, so that no
// search ends at a gap (Knuth, The Art of Computer Programming 3, 6.4, R).
func (s *shard[K, V]) remove(hash uint64, k K) {
	if s.used == 0 {
		return
	}
	gap, ok := s.find(hash, k)
	if !ok {
		return
	}
	var none V
	mask := len(s.slots) - 1
	for i := (gap + 1) & mask; s.slots[i].v != none; i = (i + 1) & mask {
		home := s.home(s.slots[i].hash)
		if (i-home)&mask >= (i-gap)&mask {
			s.slots[gap] = s.slots[i]
			gap = i
		}
	}
	s.slots[gap] = slot[V]{}
	s.used--
}
