package sched

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// rotation is whose turn it is in a tier. With equal weights that is a cursor;
// with others it is the smooth weighted round-robin of nginx: every candidate
// gains its weight, the richest one is chosen and pays what all have gained.
type rotation struct {
	cursor atomic.Uint32 // equal weights
	spare  atomic.Uint32 // equal weights: the turns of those that cannot take them

	mu      sync.Mutex // guards what follows
	current []int64    // by index in the tier; nil = equal weights
}

// newRotation goes on where the tier before stood, if there is one.
func newRotation(t, before *tier) *rotation {
	r := &rotation{}
	if t.weights != nil {
		r.current = make([]int64, len(t.backends))
	}
	if before == nil || before.rotation == nil {
		return r
	}
	standing := before.rotation.standing(before)
	if !t.sameBackends(before) {
		standing = carryOver(t, before, standing)
	}
	r.spare.Store(before.rotation.spare.Load())
	r.adopt(standing)
	return r
}

// next is round-robin.
func (r *rotation) next(t *tier, f filter) *Backend {
	if t.weights != nil {
		return r.smooth(t, f)
	}
	b := t.backends[turn(&r.cursor, len(t.backends))]
	if f.allows(b) {
		return b
	}
	return r.instead(t, f)
}

// among is next when n of the tier are known to be able to take the flow.
func (r *rotation) among(t *tier, f filter, n int) *Backend {
	if t.weights != nil || n == len(t.backends) {
		return r.next(t, f)
	}
	return r.instead(t, f)
}

// turn takes the next turn of n.
func turn(cursor *atomic.Uint32, n int) int {
	for {
		now := cursor.Load()
		at := now
		if at >= uint32(n) {
			at = 0
		}
		if cursor.CompareAndSwap(now, at+1) {
			return int(at)
		}
	}
}

// instead gives away the turn of one that cannot take it. Were it simply the
// next one's, that one would get twice its share for as long as this lasts.
func (r *rotation) instead(t *tier, f filter) *Backend {
	n := 0
	for _, b := range t.backends {
		if f.allows(b) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	skip := turn(&r.spare, n)
	var last *Backend // loads change meanwhile: fewer may be left
	for _, b := range t.backends {
		if !f.allows(b) {
			continue
		}
		if last = b; skip == 0 {
			break
		}
		skip--
	}
	return last
}

func (r *rotation) smooth(t *tier, f filter) *Backend {
	free := f.free()
	r.mu.Lock()
	defer r.mu.Unlock()
	best, total := -1, int64(0)
	for i, w := range t.weights {
		if !free && !f.allows(t.backends[i]) {
			continue
		}
		r.current[i] += int64(w)
		total += int64(w)
		if best < 0 || r.current[i] > r.current[best] {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	r.current[best] -= total
	return t.backends[best]
}

// standing is what each has gained, in the form of smooth, for either form.
func (r *rotation) standing(t *tier) []int64 {
	out := make([]int64, len(t.backends))
	if t.weights != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		copy(out, r.current)
		return out
	}
	w, done := int64(t.backends[0].share()), int64(r.cursor.Load())%int64(len(out))
	for i := range out {
		out[i] = w * done
		if int64(i) < done {
			out[i] -= w * int64(len(out))
		}
	}
	return out
}

// carryOver gives the backends of t what they had gained in before.
func carryOver(t, before *tier, standing []int64) []int64 {
	had := make(map[netip.AddrPort]int64, len(standing))
	for i, b := range before.backends {
		had[b.Address] = standing[i]
	}
	out := make([]int64, len(t.backends))
	for i, b := range t.backends {
		out[i] = had[b.Address]
	}
	return out
}

// adopt goes on from standing, around a mean of 0, where new ones begin.
func (r *rotation) adopt(standing []int64) {
	richest, sum := 0, int64(0)
	for i, v := range standing {
		sum += v
		if v > standing[richest] {
			richest = i
		}
	}
	r.cursor.Store(uint32(richest))
	for i := range r.current {
		r.current[i] = standing[i] - sum/int64(len(standing))
	}
}
