package sched

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// The key of the hash: fractional parts of square roots of primes, as in
// FIPS 180-4 section 5.3.5. Changing it moves every client everywhere.
const (
	key0   = 0x6a09e667f3bcc908
	key1   = 0xbb67ae8584caa73b
	key2   = 0x3c6ef372fe94f82b
	golden = 0x9e3779b97f4a7c15 // 2^64 / golden ratio
)

// mix is the finaliser of SplitMix64: a bijection in which every bit of the
// input changes every bit of the output half of the time.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashAddr hashes an address; IPv4 and the same IPv4-mapped are one.
func hashAddr(a netip.Addr) uint64 {
	b := a.As16()
	h := mix(key0 ^ binary.BigEndian.Uint64(b[:8]))
	return mix(h + key1 ^ binary.BigEndian.Uint64(b[8:]))
}

func hashAddrPort(a netip.AddrPort) uint64 {
	return mix(hashAddr(a.Addr()) + key2 ^ uint64(a.Port()))
}

// scale maps a hash to 0 … n-1, evenly.
func scale(h, n uint64) uint64 {
	hi, _ := bits.Mul64(h, n)
	return hi
}

// log2Table is log2(1 + i/256) with 32 binary places, computed in integers so
// that every host has the same one.
var log2Table = makeLog2Table()

func makeLog2Table() (t [257]uint64) {
	for i := range 256 {
		x := uint64(256+i) << 55 // in [1, 2) with 63 binary places
		for range 32 {
			x, _ = bits.Mul64(x, x) // in [1, 4) with 62 places
			t[i] <<= 1
			if x>>63 == 1 {
				t[i] |= 1
			} else {
				x <<= 1
			}
		}
	}
	t[256] = 1 << 32
	return t
}

// negLog2 is -log2(h / 2^64) with 32 binary places, off by less than 2^-18: a
// sample of the exponential distribution when h is a hash.
func negLog2(h uint64) uint64 {
	zeros := bits.LeadingZeros64(h | 1)
	m := h << zeros
	i, rest := m>>55&0xff, m>>23&0xffffffff
	log := log2Table[i] + (log2Table[i+1]-log2Table[i])*rest>>32
	return uint64(zeros+1)<<32 - log
}
