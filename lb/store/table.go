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
	shards [shardCount]*shard[K, V]
}

func (t *table[K, V]) get(hash uint64, k K) (v V, ok bool) {
	s := t.shards[hash%shardCount]
	if s == nil {
		return v, false
	}
	return s.get(hash, k)
}

// all calls yield with every entry, in no order.
func (t *table[K, V]) all(yield func(V) bool) {
	var none V
	for _, s := range t.shards {
		if s == nil {
			continue
		}
		for i := range s.slots {
			if v := s.slots[i].v; v != none && !yield(v) {
				return
			}
		}
	}
}

// edit is a table in the making: it shares every shard with the table it came
// from until it first changes it.
type edit[K comparable, V keyed[K]] struct {
	table[K, V]
	owned [shardCount]bool
}

func (t *table[K, V]) edit() *edit[K, V] { return &edit[K, V]{table: *t} }

func (e *edit[K, V]) put(hash uint64, k K, v V) { e.own(hash).put(hash, k, v) }

func (e *edit[K, V]) remove(hash uint64, k K) { e.own(hash).remove(hash, k) }

func (e *edit[K, V]) own(hash uint64) *shard[K, V] {
	i := hash % shardCount
	if !e.owned[i] {
		e.shards[i] = e.shards[i].clone()
		e.owned[i] = true
	}
	return e.shards[i]
}
