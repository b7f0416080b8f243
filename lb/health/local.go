package health

import (
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
)

// Local makes an Options.DialLocal: the addresses of the backend's family in
// turn, and ports of the range at random. No addresses of that family, or 0 for
// first, leave that part to the kernel.
func Local(addresses []netip.Addr, first, last uint16) func(to netip.AddrPort) netip.AddrPort {
	var v4, v6 []netip.Addr
	for _, a := range addresses {
		if a.Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	var turn atomic.Uint32
	return func(to netip.AddrPort) netip.AddrPort {
		from := v6
		if to.Addr().Is4() {
			from = v4
		}
		var addr netip.Addr
		if len(from) > 0 {
			addr = from[int(turn.Add(1))%len(from)]
		}
		port := first
		if first > 0 && last > first {
			port += uint16(rand.N(uint32(last-first) + 1))
		}
		return netip.AddrPortFrom(addr, port)
	}
}
