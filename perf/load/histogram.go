package load

import (
	"math/bits"
	"time"
)

// A bucket of a Histogram is at most 1/2^precision wide of the times in it.
const precision = 6

// Histogram counts durations, exact to about 1.6 %. The zero value is empty.
type Histogram struct {
	counts [(64 - precision + 1) << precision]uint32
	total  uint64
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	h.counts[bucket(uint64(max(d, 0)))]++
	h.total++
}

// Count is how many durations were counted.
func (h *Histogram) Count() uint64 { return h.total }

// Quantile is the duration that a share q (0 to 1) of those counted does not
// exceed, 0 when none was.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.total))
	seen := uint64(0)
	for i, n := range h.counts {
		seen += uint64(n)
		if n > 0 && (seen > rank || seen == h.total) {
			return time.Duration(lowest(i) + (lowest(i+1)-lowest(i))/2)
		}
	}
	return 0
}

// bucket is where v is counted: 2^precision buckets a power of two, and one a
// value below that.
func bucket(v uint64) int {
	shift := max(0, bits.Len64(v)-precision-1)
	return shift<<precision + int(v>>shift)
}

// lowest is the smallest value of bucket i.
func lowest(i int) uint64 {
	if i < 2<<precision {
		return uint64(i)
	}
	shift := i>>precision - 1
	return uint64(i-shift<<precision) << shift
}
