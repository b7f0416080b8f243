package offload

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// PortParams says from where flows that may be offloaded reach their backends. The
// zero value leaves the address to the kernel and takes the ports of its default
// range.
type PortParams struct {
	First, Last uint16       // range of the ports of all connections to backends; 0 = 32768-60999
	Addresses   []netip.Addr // of ours alone, used in turn, by family; empty = the kernel's choice
}

// The kernel's default of net.ipv4.ip_local_port_range.
const defaultFirstPort, defaultLastPort = 32768, 60999

// Lent is the range of ports that flows take which may be offloaded. Without
// addresses of our own it is the upper half: the lower one is for flows that never
// will be, whose ports the kernel chooses, and the upper one must be reserved so
// that the kernel chooses none of it for anybody.
func (p PortParams) Lent() (first, last uint16) {
	first, last = p.First, p.Last
	if first == 0 {
		first, last = defaultFirstPort, defaultLastPort
	}
	if len(p.Addresses) == 0 {
		first += (last - first + 1) / 2
	}
	return first, last
}

// Steered is the part of Lent that clients of steered flows are masked with: the upper
// quarter. The rest is for handoffs.
func (p PortParams) Steered() (first, last uint16) {
	first, last = p.Lent()
	if first > last {
		return first, last
	}
	return last - (last-first+1)/4 + 1, last
}

// handedOff is the rest.
func (p PortParams) handedOff() (first, last uint16) {
	first, last = p.Lent()
	if steered, _ := p.Steered(); steered <= last {
		last = steered - 1
	}
	return first, last
}

// quarantine is how long a port is not used again towards a backend after an
// offloaded flow: longer than the backend keeps that connection in TIME_WAIT (60 s
// with Linux), where a new SYN with an older timestamp would be refused. The next
// process does not know which ports rest, for that costs little: the backend answers
// such a SYN with an acknowledgement of the old connection, our reset ends that, and the
// SYN that is sent again some milliseconds later is a new one's.
const quarantine = 75 * time.Second

// ports lends source ports. A port is free towards one backend while it is used
// towards another: what must be unique is the whole tuple.
type ports struct {
	// Immutable.
	first  uint16
	count  int
	v4, v6 []netip.Addr
	usable []uint64 // which ports of the range may be used at all; a bit each

	mu       sync.Mutex // guards what follows
	blocks   map[portKey]*portBlock
	resting  []restingPort // in quarantine, the oldest first
	restHead int
	turn     uint
}

// portKey is the rest of a tuple.
type portKey struct {
	source  netip.Addr // invalid = the kernel's choice
	backend netip.AddrPort
}

// portBlock is the free ports of one key.
type portBlock struct {
	free []uint64 // a bit each
	used int
}

type restingPort struct {
	block *portBlock
	port  uint16
	until time.Time
}

// newPorts makes the ports of p that are not reserved by somebody else.
func newPorts(p PortParams, reserved portSet) (*ports, error) {
	first, last := p.handedOff()
	if first > last {
		return nil, fmt.Errorf("source ports %d-%d: the range is empty", p.First, p.Last)
	}
	s := &ports{first: first, count: int(last-first) + 1, blocks: make(map[portKey]*portBlock)}
	for _, a := range p.Addresses {
		if a = a.Unmap(); a.Is4() {
			s.v4 = append(s.v4, a)
		} else {
			s.v6 = append(s.v6, a)
		}
	}
	s.usable = make([]uint64, (s.count+63)/64)
	some := false
	for i := range s.count {
		if !reserved.has(first + uint16(i)) {
			s.usable[i/64] |= 1 << (i % 64)
			some = true
		}
	}
	if !some {
		return nil, fmt.Errorf("source ports %d-%d: every one is reserved (net.ipv4.ip_local_reserved_ports)", first, last)
	}
	return s, nil
}

// take lends a port towards a backend. The address is invalid when the kernel is to
// choose it.
func (s *ports) take(backend netip.AddrPort) (netip.AddrPort, bool) {
	addrs := s.addresses(backend.Addr())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	for i := range uint(max(1, len(addrs))) {
		key := portKey{backend: backend}
		if len(addrs) > 0 {
			key.source = addrs[(s.turn+i)%uint(len(addrs))]
		}
		if port, ok := s.takeLocked(key); ok {
			return netip.AddrPortFrom(key.source, port), true
		}
	}
	return netip.AddrPort{}, false
}

func (s *ports) addresses(backend netip.Addr) []netip.Addr {
	if backend.Is4() {
		return s.v4
	}
	return s.v6
}

func (s *ports) takeLocked(key portKey) (uint16, bool) {
	b := s.blockLocked(key)
	i, ok := b.pick(rand.Uint32N(uint32(s.count)))
	if !ok {
		return 0, false
	}
	b.set(i)
	return s.first + uint16(i), true
}

func (s *ports) blockLocked(key portKey) *portBlock {
	b := s.blocks[key]
	if b == nil {
		b = &portBlock{free: append([]uint64(nil), s.usable...)}
		s.blocks[key] = b
	}
	return b
}

// pick returns the first free port from i on, beginning anew at the end.
func (b *portBlock) pick(i uint32) (int, bool) {
	n := len(b.free)
	w := int(i / 64)
	word := b.free[w] &^ (1<<(i%64) - 1)
	for range n + 1 {
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word), true
		}
		if w++; w == n {
			w = 0
		}
		word = b.free[w]
	}
	return 0, false
}

func (b *portBlock) set(i int) {
	b.free[i/64] &^= 1 << (i % 64)
	b.used++
}

// mark takes a port that is in use already, by a flow of an earlier process.
func (s *ports) mark(local, backend netip.AddrPort) {
	i := int(local.Port()) - int(s.first)
	if i < 0 || i >= s.count {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blockLocked(s.key(local, backend))
	if b.free[i/64]&(1<<(i%64)) != 0 {
		b.set(i)
	}
}

// key is where a lent port is counted: without addresses of our own that does not
// depend on the one that the kernel has chosen.
func (s *ports) key(local, backend netip.AddrPort) portKey {
	k := portKey{backend: backend}
	if len(s.addresses(backend.Addr())) > 0 {
		k.source = local.Addr()
	}
	return k
}

// give returns a port that can be used again at once.
func (s *ports) give(local, backend netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveLocked(s.blocks[s.key(local, backend)], local.Port())
}

func (s *ports) giveLocked(b *portBlock, port uint16) {
	i := int(port) - int(s.first)
	if b == nil || i < 0 || i >= s.count || s.usable[i/64]&(1<<(i%64)) == 0 || b.free[i/64]&(1<<(i%64)) != 0 {
		return
	}
	b.free[i/64] |= 1 << (i % 64)
	b.used--
}

// rest returns a port that must not be used for a while.
func (s *ports) rest(local, backend netip.AddrPort, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.blocks[s.key(local, backend)]; b != nil {
		s.resting = append(s.resting, restingPort{b, local.Port(), until})
	}
}

// tidy ends quarantines that are over and forgets backends without flows. It
// reports whether there is anything left to tidy.
func (s *ports) tidy(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; s.restHead < len(s.resting) && !s.resting[s.restHead].until.After(now); s.restHead++ {
		r := s.resting[s.restHead]
		s.giveLocked(r.block, r.port)
	}
	if s.restHead == len(s.resting) {
		s.resting, s.restHead = nil, 0 // many may have rested
	} else if s.restHead > 1024 && s.restHead > len(s.resting)/2 {
		s.resting = s.resting[:copy(s.resting, s.resting[s.restHead:])]
		s.restHead = 0
	}
	for k, b := range s.blocks {
		if len(s.blocks) <= keptBlocks {
			break
		}
		if b.used == 0 {
			delete(s.blocks, k)
		}
	}
	return len(s.resting) > 0 || len(s.blocks) > keptBlocks
}

// keptBlocks is for how many backends the free ports are remembered while nothing
// is used of them: 3.5 KiB each at most.
const keptBlocks = 256
