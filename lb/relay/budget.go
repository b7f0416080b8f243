package relay

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// budget is how many descriptors the data path may use, so that the admin
// socket, files and listeners still get theirs when clients take all they can.
//
// UDP sessions may have three quarters of it, one service half, and an eighth is
// theirs whatever connections there are, once one has begun: neither kind can take
// everything from the other.
type budget struct {
	limit int64
	used  atomic.Int64
	udp   atomic.Int64 // of used: UDP sessions
	asked atomic.Bool  // there has been a UDP session
}

// reservedDescriptors are left to the rest of the process.
const reservedDescriptors = 48

// newBudget divides what RLIMIT_NOFILE leaves between pipes and connections.
// limit = 0 takes the process's own limit. inherited are open already, and will be
// held one by one when their frontends want them.
func newBudget(limit, inherited int) (b *budget, pipes int, err error) {
	if limit == 0 {
		var r unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
			return nil, 0, fmt.Errorf("read the descriptor limit: %w", err)
		}
		limit = int(min(r.Cur, 1<<30))
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, 0, fmt.Errorf("count open descriptors: %w", err)
	}
	free := limit - (len(open) - inherited) - min(reservedDescriptors, limit/8)
	if free < 16 {
		return nil, 0, fmt.Errorf("a limit of %d descriptors with %d of them open leaves none for connections: raise it (ulimit -n)", limit, len(open))
	}
	pipes = min(1024, free/32)
	return &budget{limit: int64(free - 2*pipes)}, pipes, nil
}

// take reserves n descriptors for a connection if they are to be had.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= b.limit-b.keptForUDP() {
		return true
	}
	b.used.Add(-n)
	return false
}

// errNoDescriptors is the failure of a frontend that would leave too few
// descriptors for connections.
var errNoDescriptors = errors.New("the listeners use up the descriptors that connections need: raise the limit (ulimit -n)")

// holds reports whether connections have enough left beside n listeners.
func (b *budget) holds(n int) bool { return int64(n) <= b.limit-b.limit/8 }

// hold reserves n descriptors, also when connections have taken them all: a
// listener then has one of those that are left to the rest of the process.
func (b *budget) hold(n int64) { b.used.Add(n) }

// put gives n descriptors back.
func (b *budget) put(n int64) { b.used.Add(-n) }

// room is how many could be taken for connections.
func (b *budget) room() int { return int(max(0, b.limit-b.keptForUDP()-b.used.Load())) }

func (b *budget) keptForUDP() int64 {
	if !b.asked.Load() {
		return 0
	}
	return max(0, b.limit/8-b.udp.Load())
}

// udpLimit is how many sessions one service may have.
func (b *budget) udpLimit() int64 { return b.limit / 2 }

// takeUDP reserves the descriptor of a UDP session if it is to be had.
func (b *budget) takeUDP() bool {
	if !b.asked.Load() {
		b.asked.Store(true)
	}
	b.forceUDP()
	if b.udp.Load() <= b.limit*3/4 && b.used.Load() <= b.limit {
		return true
	}
	b.putUDP()
	return false
}

// forceUDP takes one for a session in whose place another one is ending.
func (b *budget) forceUDP() {
	b.used.Add(1)
	b.udp.Add(1)
}

func (b *budget) putUDP() {
	b.used.Add(-1)
	b.udp.Add(-1)
}
