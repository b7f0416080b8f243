package relay

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// SourceParams is where connections to backends come from. The zero value
// leaves the choice to the kernel.
type SourceParams struct {
	Addresses     []netip.Addr // used in turn, by family; empty = the kernel's choice
	FirstPort     uint16       // with LastPort, the range of ports; 0 = the kernel's
	LastPort      uint16
	ReservedPorts func(uint16) bool // never used; nil = the kernel's ip_local_reserved_ports
	KernelFirst   uint16            // the kernel's own range; 0 = as /proc says
	KernelLast    uint16
}

// portTries is how many ports are tried for one connection when the kernel is
// not asked, or has none left. With nine of ten ports taken, one dial in a
// million finds none. More would keep a loop busy for long when none is free.
const portTries = 128

// sources hands out local addresses and ports for dialling.
type sources struct {
	v4, v6    []netip.Addr
	ports     []uint16 // of the range, without reserved ones
	askKernel bool     // the range is the kernel's own
	turn      atomic.Uint32
}

func newSources(p SourceParams) (*sources, error) {
	if p.KernelFirst == 0 {
		p.KernelFirst, p.KernelLast = parseRange(readSysctl("ip_local_port_range"))
	}
	if p.FirstPort == 0 {
		p.FirstPort, p.LastPort = p.KernelFirst, p.KernelLast
	}
	if p.ReservedPorts == nil {
		p.ReservedPorts = parseReserved(readSysctl("ip_local_reserved_ports"))
	}
	s := &sources{askKernel: p.FirstPort == p.KernelFirst && p.LastPort == p.KernelLast}
	for port := int(p.FirstPort); port <= int(p.LastPort); port++ {
		if !p.ReservedPorts(uint16(port)) {
			s.ports = append(s.ports, uint16(port))
		}
	}
	if len(s.ports) == 0 {
		return nil, fmt.Errorf("source ports %d-%d: the range is empty, or every port in it is reserved (net.ipv4.ip_local_reserved_ports)",
			p.FirstPort, p.LastPort)
	}
	for _, a := range p.Addresses {
		if a.Is4() {
			s.v4 = append(s.v4, a)
		} else {
			s.v6 = append(s.v6, a)
		}
	}
	return s, nil
}

// has reports whether a local address may be used towards a backend.
func (s *sources) has(local netip.AddrPort, to netip.Addr) bool {
	addrs := s.addresses(to)
	_, port := slices.BinarySearch(s.ports, local.Port())
	return port && local.Addr().Is4() == to.Is4() && (len(addrs) == 0 || slices.Contains(addrs, local.Addr()))
}

// chooses reports whether port may become a local one.
func (s *sources) chooses(port uint16) bool {
	return s.ports[0] <= port && port <= s.ports[len(s.ports)-1]
}

// tries is how many local addresses can be tried towards a backend.
func (s *sources) tries(to netip.Addr) int {
	if s.askKernel {
		return max(1, len(s.addresses(to))) + portTries
	}
	return portTries
}

// local is what to bind for the given try. The kernel is asked once for each
// address, if the range is its own; then ports are tried at random, because the
// taken ones may lie side by side. That also finds those of connections in
// TIME_WAIT: connect(2) from a port that was bound takes over the place of such
// a connection when it had timestamps, and the kernel's own search does so only
// for ones of a second ago and where net.ipv4.tcp_tw_reuse allows it
// (tcp_twsk_unique).
func (s *sources) local(to netip.Addr, try int) netip.AddrPort {
	addrs := s.addresses(to)
	var addr netip.Addr
	if len(addrs) > 0 {
		addr = addrs[int(s.turn.Add(1))%len(addrs)]
	}
	if s.askKernel && try < max(1, len(addrs)) {
		return netip.AddrPortFrom(addr, 0)
	}
	return netip.AddrPortFrom(addr, s.ports[rand.IntN(len(s.ports))])
}

func (s *sources) addresses(to netip.Addr) []netip.Addr {
	if to.Is4() {
		return s.v4
	}
	return s.v6
}

func readSysctl(name string) string {
	// The file is there for IPv6 too: both families share these settings.
	b, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// parseRange reads "32768	60999", the kernel's default when it is anything else.
func parseRange(s string) (first, last uint16) {
	f := strings.Fields(s)
	if len(f) == 2 {
		a, errA := strconv.ParseUint(f[0], 10, 16)
		b, errB := strconv.ParseUint(f[1], 10, 16)
		if errA == nil && errB == nil && 0 < a && a <= b {
			return uint16(a), uint16(b)
		}
	}
	return 32768, 60999
}

// parseReserved reads a list as "8080,9000-9010".
func parseReserved(s string) func(uint16) bool {
	reserved := make(map[uint16]bool)
	for _, part := range strings.Split(s, ",") {
		lo, hi, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			hi = lo
		}
		a, errA := strconv.ParseUint(lo, 10, 16)
		b, errB := strconv.ParseUint(hi, 10, 16)
		if errA != nil || errB != nil {
			continue
		}
		for p := a; p <= b; p++ {
			reserved[uint16(p)] = true
		}
	}
	return func(p uint16) bool { return reserved[p] }
}
