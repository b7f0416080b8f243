package store

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"

	"github.com/baton-lb/baton/lb"
)

// The seeds are new in every process, so that nobody can choose addresses that
// all fall into one shard.
var (
	nameSeed = maphash.MakeSeed()
	keySeed  = [3]uint64{rand.Uint64() | 1, rand.Uint64() | 1, rand.Uint64() | 1}
)

func hashName(name string) uint64 { return maphash.String(nameSeed, name) }

// hashKey multiplies and folds the address, then port and protocol, as wyhash
// does: unlike maphash.Comparable it needs no allocation for a netip.Addr.
func hashKey(k lb.FrontendKey) uint64 {
	a := k.Address.Addr().As16()
	h := fold(binary.BigEndian.Uint64(a[:8])^keySeed[0], binary.BigEndian.Uint64(a[8:])^keySeed[1])
	return fold(h^keySeed[2], uint64(k.Address.Port())<<8^uint64(k.Proto)^keySeed[1])
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
