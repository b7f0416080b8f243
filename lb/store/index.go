package store

import (
	"net/netip"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
)

// smallPool is how many backends are searched one by one.
const smallPool = 8

// index finds backends of a pool by address: a hash table with open addressing
// of positions in the pool plus one, at most half full. A small pool has none.
type index []int32

// newIndex makes room for an index of n backends.
func newIndex(n int) index {
	if n <= smallPool {
		return nil
	}
	size := 2 * smallPool
	for size < 2*n {
		size *= 2
	}
	return make(index, size)
}

func hashAddr(a netip.AddrPort) uint64 { return hashKey(lb.FrontendKey{Address: a}) }

// add enters the backend at position at of the pool. Its address must be new.
func (x index) add(at int, a netip.AddrPort) {
	if x == nil {
		return
	}
	i := int(hashAddr(a)) & (len(x) - 1)
	for x[i] != 0 {
		i = (i + 1) & (len(x) - 1)
	}
	x[i] = int32(at + 1)
}

func (x index) find(pool []*sched.Backend, a netip.AddrPort) (*sched.Backend, bool) {
	if x == nil {
		for _, b := range pool {
			if b.Address == a {
				return b, true
			}
		}
		return nil, false
	}
	for i := int(hashAddr(a)) & (len(x) - 1); x[i] != 0; i = (i + 1) & (len(x) - 1) {
		if b := pool[x[i]-1]; b.Address == a {
			return b, true
		}
	}
	return nil, false
}
