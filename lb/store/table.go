package store

// shardCount is how many parts a table has. With 30,000 services a part has
// about 120 entries: that, and not the table, is copied to change one of them.
const shardCount = 256

// keyed is an entry that knows what it is found by, under one key or several.
type keyed[K comparable] interface {
	comparable
	is(K) bool
}

// table is an immutable hash table in shards, made by an edit. The zero value
// is empty. Its reader neither locks nor allocates.
type table[K comparable, V keyed[K]] struct {
	shards [shardCount]shard[K, V]
}

func (t *table[K, V]) get(hash uint64, k K) (v V, ok bool) {
	s := t.shards[hash%shardCount]
	if len(s) == 0 {
		return v, false
	}
	i, ok := s.find(hash, k)
	return s[i].v, ok
}

// all calls yield with every entry, in no order.
func (t *table[K, V]) all(yield func(V) bool) {
	var none V
	for _, s := range t.shards {
		for i := range s {
			if v := s[i].v; v != none && !yield(v) {
				return
			}
		}
	}
}

// edit is a table in the making: it shares every shard with the table it came
// from until it first changes it, and copies each at most once.
type edit[K comparable, V keyed[K]] struct {
	table[K, V]
	owned [shardCount]bool
	used  [shardCount]int // entries of owned shards
}

func (t *table[K, V]) edit() *edit[K, V] { return &edit[K, V]{table: *t} }

func (e *edit[K, V]) put(hash uint64, k K, v V) {
	s, used := e.own(hash)
	if 4*(*used+1) > 3*len(*s) {
		*s = s.grown()
	}
	i, exists := s.find(hash, k)
	(*s)[i] = slot[V]{hash, v}
	if !exists {
		*used++
	}
}

func (e *edit[K, V]) remove(hash uint64, k K) {
	if s, used := e.own(hash); *used > 0 && s.remove(hash, k) {
		*used--
	}
}

// own returns the shard for a hash, copied if it is still shared, and the count
// of its entries.
func (e *edit[K, V]) own(hash uint64) (*shard[K, V], *int) {
	i := hash % shardCount
	if !e.owned[i] {
		e.owned[i] = true
		e.shards[i], e.used[i] = e.shards[i].clone()
	}
	return &e.shards[i], &e.used[i]
}
