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
type budget struct {
	limit int64
	used  atomic.Int64
}

// reservedDescriptors are left to the rest of the process.
const reservedDescriptors = 48

// newBudget divides what RLIMIT_NOFILE leaves between pipes and connections.
// limit = 0 takes the process's own limit.
func newBudget(limit int) (b *budget, pipes int, err error) {
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
	free := limit - len(open) - min(reservedDescriptors, limit/8)
	if free < 16 {
		return nil, 0, fmt.Errorf("a limit of %d descriptors with %d of them open leaves none for connections: raise it (ulimit -n)", limit, len(open))
	}
	pipes = min(1024, free/32)
	return &budget{limit: int64(free - 2*pipes)}, pipes, nil
}

// take reserves n descriptors if they are to be had.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= b.limit {
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

// room is how many could be taken.
func (b *budget) room() int { return int(max(0, b.limit-b.used.Load())) }
