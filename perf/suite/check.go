package suite

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/baton-lb/baton/perf/mode"
	"github.com/baton-lb/baton/perf/workload"
)

// ErrOtherWay is wrapped when traffic did not go the way that its mode claims.
var ErrOtherWay = errors.New("traffic did not go the way it claims")

// countTime is how long a mode may take to count what has ended.
const countTime = 3 * time.Second

// check compares what arrived with whom the backends saw and with what the mode
// has counted since before.
func check(ctx context.Context, running mode.Running, before mode.Counts, r workload.Result) error {
	if err := checkSeen(r.Seen, running.Shows()); err != nil {
		return fmt.Errorf("%w: %w", ErrOtherWay, err)
	}
	claim := mode.Counts{mode.Flows: uint64(r.Flows), mode.ToBackend: uint64(r.ToBackend), mode.ToClient: uint64(r.ToClient)}
	deadline := time.Now().Add(countTime)
	for {
		now, err := running.Count(ctx)
		if err != nil {
			return err
		}
		err = now.Since(before).Cover(claim)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: %w", ErrOtherWay, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// checkSeen says whom the backends should not have seen.
func checkSeen(seen map[netip.Addr]int64, shows []netip.Addr) error {
	if len(seen) == 0 {
		return errors.New("the backends saw nobody")
	}
	for peer, n := range seen {
		if !slices.Contains(shows, peer) {
			return fmt.Errorf("the backends saw %s, %d times, where %v was to be seen", peer, n, shows)
		}
	}
	return nil
}
