package steer

import (
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/steer/program"
)

// silence is of one peer of a connection, while the other goes on: whatever carries data, or asks whether anybody is there, is
// acknowledged by a peer that lives, so that packets of one side alone are repetitions. The zero value is that of nobody.
type silence struct {
	of    flow.By
	since time.Time
}

// look compares what was read of a flow with what had been.
func (s *silence) look(before, v *program.Flow, now time.Time) {
	client := v.Counters.PacketsToBackend != before.Counters.PacketsToBackend
	backend := v.Counters.PacketsToClient != before.Counters.PacketsToClient
	switch {
	case client && backend:
		*s = silence{}
	case client && s.of != flow.ByBackend:
		*s = silence{flow.ByBackend, now}
	case backend && s.of != flow.ByClient:
		*s = silence{flow.ByClient, now}
	}
}

// lost reports whether a peer has been silent for so long.
func (p *path) lost(limit time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return limit > 0 && p.silent.of != "" && p.lastAt.Sub(p.silent.since) > limit
}
