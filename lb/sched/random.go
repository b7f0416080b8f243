package sched

import "slices"

// redraws is how often a draw that met a full or tried one is repeated before
// all are looked at.
const redraws = 4

// bestOfTwo draws two different ones by weight and takes the one with fewer
// open flows for its weight, the first when they are equal.
func (t *tier) bestOfTwo(f filter, s *Scheduler) *Backend {
	i, ok := t.drawAllowed(f, s)
	if !ok {
		return t.drawAny(f, s)
	}
	first := t.backends[i]
	if len(t.backends) == 1 {
		return first
	}
	if second := t.backends[t.drawOther(i, s)]; second.level().below(first.level()) && f.allows(second) {
		return second
	}
	return first
}

func (t *tier) drawAllowed(f filter, s *Scheduler) (int, bool) {
	for range redraws {
		if i := t.draw(s); f.allows(t.backends[i]) {
			return i, true
		}
	}
	return 0, false
}

// draw draws an index by weight.
func (t *tier) draw(s *Scheduler) int {
	if t.weights == nil {
		return int(s.randN(uint64(len(t.backends))))
	}
	return t.at(s.randN(t.sums[len(t.sums)-1]))
}

// drawOther draws an index by weight that is not i. There must be another one.
func (t *tier) drawOther(i int, s *Scheduler) int {
	if t.weights == nil {
		j := int(s.randN(uint64(len(t.backends) - 1)))
		if j >= i {
			j++
		}
		return j
	}
	w := uint64(t.weights[i])
	x := s.randN(t.sums[len(t.sums)-1] - w)
	if x >= t.sums[i]-w {
		x += w
	}
	return t.at(x)
}

// at is the index into whose share of the weights x falls.
func (t *tier) at(x uint64) int {
	i, _ := slices.BinarySearch(t.sums, x+1)
	return i
}

// drawAny draws by weight among those that can take the flow, looking at all.
func (t *tier) drawAny(f filter, s *Scheduler) *Backend {
	var chosen *Backend
	total := uint64(0)
	for _, b := range t.backends {
		if !f.allows(b) {
			continue
		}
		share := uint64(b.share())
		total += share
		if s.randN(total) < share {
			chosen = b
		}
	}
	return chosen
}

func sumsOf(weights []uint32) []uint64 {
	if weights == nil {
		return nil
	}
	sums, sum := make([]uint64, len(weights)), uint64(0)
	for i, w := range weights {
		sum += uint64(w)
		sums[i] = sum
	}
	return sums
}
