package proxyproto

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

// TestScanAddrAgainstNetip compares with net/netip over random texts made of likely pieces.
func TestScanAddrAgainstNetip(t *testing.T) {
	pieces := []string{"1", "0", "ff", "255", "256", "1000", "fFfF", "12345", ":", ":", ":", ":", "::", ".", ".", "::ffff:", "%x"}
	rng := rand.New(rand.NewPCG(1, 2))
	good := 0
	for range 300_000 {
		var s string
		for range 1 + rng.IntN(17) {
			s += pieces[rng.IntN(len(pieces))]
		}
		want, err := netip.ParseAddr(s)
		for _, ipv4 := range []bool{true, false} {
			ok := err == nil && want.Zone() == "" && want.Is4() == ipv4
			if ok && !ipv4 && strings.Contains(s, ".") {
				ok = strings.HasPrefix(strings.ToLower(s), "::ffff:")
			}
			got, rest, err := scanAddr([]byte(s+" x"), ipv4)
			if ok != (err == nil) || ok && (got.Unmap() != want.Unmap() || string(rest) != "x") {
				t.Fatalf("%q: got %v, %q, %v; want %v %v", s, got, rest, err, want, ok)
			}
			if ok {
				good++
			}
		}
	}
	if good < 1000 {
		t.Fatalf("only %d good addresses among the texts", good)
	}
}
