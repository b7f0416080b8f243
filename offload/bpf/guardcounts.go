package bpf

import "fmt"

// GuardCounts is what a guard did with packets: SYNs and datagrams. Those that went to frontends' own sockets, or were for
// none of its VIPs, are not counted.
type GuardCounts struct {
	Shared   uint64 // given to a shared socket
	Silent   uint64 // swallowed
	Refused  uint64 // refused at a frontend
	Closed   uint64 // refused at a VIP's port that is no frontend
	NoSocket uint64 // refused because the socket that should answer was not there
	Denied   uint64 // swallowed because of who asked
}

// Counts reads what the guard has counted since it was attached.
func (g *Guard) Counts() (c GuardCounts, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return c, ErrClosed
	}
	for at, n := range map[guardCount]*uint64{
		guardCountCOUNT_SHARED: &c.Shared, guardCountCOUNT_SILENT: &c.Silent, guardCountCOUNT_REFUSED: &c.Refused,
		guardCountCOUNT_CLOSED: &c.Closed, guardCountCOUNT_NO_SOCKET: &c.NoSocket, guardCountCOUNT_DENIED: &c.Denied,
	} {
		var perCPU []uint64
		if err := g.objects.GuardCounts.Lookup(at, &perCPU); err != nil {
			return c, fmt.Errorf("read counts of the guard: %w", err)
		}
		for _, v := range perCPU {
			*n += v
		}
	}
	return c, nil
}
