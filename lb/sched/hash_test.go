package sched

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestNegLog2(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	check := func(h uint64) {
		t.Helper()
		got := float64(negLog2(h)) / (1 << 32)
		want := 64 - math.Log2(float64(h))
		if math.Abs(got-want) > 1.0/(1<<18) {
			t.Errorf("negLog2(%#x) = %v, want %v", h, got, want)
		}
	}
	for range 10_000 {
		check(rnd.Uint64()>>rnd.IntN(64) | 1)
	}
	for bit := range 64 {
		check(1 << bit)
	}
	check(math.MaxUint64)
	if negLog2(0) < negLog2(1) {
		t.Error("0 is more than 1")
	}
}

func TestNegLog2NeverRises(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		a, b := rnd.Uint64(), rnd.Uint64()
		if a < b && negLog2(a) < negLog2(b) || a > b && negLog2(a) > negLog2(b) {
			t.Fatalf("not monotone at %#x and %#x", a, b)
		}
	}
}

func TestScale(t *testing.T) {
	for _, c := range []struct{ h, n, want uint64 }{
		{0, 10, 0}, {math.MaxUint64, 10, 9}, {1 << 63, 10, 5}, {math.MaxUint64, 1, 0}, {5, 0, 0},
	} {
		if got := scale(c.h, c.n); got != c.want {
			t.Errorf("scale(%#x, %d) = %d, want %d", c.h, c.n, got, c.want)
		}
	}
}

// Every bit of an address or port changes about half of the hash.
func TestHashAvalanche(t *testing.T) {
	for i := range 50 {
		a, b := hashAddrPort(client(i)), hashAddrPort(client(i+2))
		if n := popcount(a ^ b); n < 12 || n > 52 {
			t.Errorf("clients %s and %s differ in %d bits", client(i), client(i+2), n)
		}
	}
}

func popcount(x uint64) (n int) {
	for ; x != 0; x &= x - 1 {
		n++
	}
	return n
}
