package relay

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/baton-lb/baton/lb/relay/capture"
)

// leaving are VIPs that no service has any more and that still have a route:
// without it the connections that are open there, and what closed ones have yet
// to deliver, would fall silent. Relay.mu guards them.
type leaving struct {
	addrs map[netip.Addr]struct{}
	timer *time.Timer // of the next sweep
	pause time.Duration
}

// Pauses between two looks at the connections of leaving VIPs.
const (
	minSweepPause = 50 * time.Millisecond
	maxSweepPause = 5 * time.Second
)

func (l *leaving) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// sweepLocked removes the routes of those VIPs whose last connection has ended,
// and looks again later while there are others.
func (r *Relay) sweepLocked() {
	l := &r.vips.leaving
	if len(l.addrs) == 0 || r.inherit.holding {
		return
	}
	busy, err := capture.Connected(slices.Collect(maps.Keys(l.addrs)))
	var gone []netip.Addr
	if err == nil {
		for a := range l.addrs {
			if !busy[a] && !r.carried.has(a) {
				gone = append(gone, a)
				delete(l.addrs, a)
			}
		}
	}
	if len(gone) > 0 {
		r.removeRoutesLocked(gone)
		l.pause = 0
	}
	if len(l.addrs) == 0 {
		return
	}
	l.stop()
	l.pause = min(max(minSweepPause, 2*l.pause), maxSweepPause)
	l.timer = time.AfterFunc(l.pause, r.sweep)
}

func (r *Relay) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closing {
		r.sweepLocked()
	}
}

// delivering reports whether a connection to a VIP that has a route of ours has
// something to deliver yet, though the flow has ended: the kernel does that, and
// it needs the route.
func (r *Relay) delivering() bool {
	r.mu.Lock()
	routed := slices.Collect(maps.Keys(r.vips.routed))
	r.mu.Unlock()
	if len(routed) == 0 {
		return false
	}
	busy, err := capture.Connected(routed)
	return err == nil && len(busy) > 0
}
