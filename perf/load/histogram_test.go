package load

import (
	"math"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	for _, v := range []uint64{0, 1, 63, 64, 127, 128, 129, 255, 256, 1000, 1e6, 123456789, math.MaxInt64} {
		i := bucket(v)
		if lo, hi := lowest(i), lowest(i+1); v < lo || v >= hi || float64(hi-lo) > max(1, float64(lo)/(1<<precision)) {
			t.Errorf("%d is in bucket %d, from %d to %d", v, i, lo, hi)
		}
	}
	for i := range 40 << precision {
		if bucket(lowest(i)) != i {
			t.Fatalf("the lowest of bucket %d, %d, is in bucket %d", i, lowest(i), bucket(lowest(i)))
		}
	}
}

func TestQuantile(t *testing.T) {
	var h Histogram
	if got := h.Quantile(0.5); got != 0 {
		t.Errorf("median of nothing: %v", got)
	}
	for i := range 1000 {
		h.Add(time.Duration(i+1) * time.Microsecond)
	}
	for _, tc := range []struct {
		q    float64
		want time.Duration
	}{{0, time.Microsecond}, {0.5, 500 * time.Microsecond}, {0.99, 990 * time.Microsecond}, {1, time.Millisecond}} {
		got := h.Quantile(tc.q)
		if off := math.Abs(float64(got-tc.want)) / float64(tc.want); off > 0.02 {
			t.Errorf("quantile %v: %v, want about %v", tc.q, got, tc.want)
		}
	}
	if h.Count() != 1000 {
		t.Errorf("counted %d", h.Count())
	}
}
