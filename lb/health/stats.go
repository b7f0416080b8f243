package health

import (
	"maps"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// ProbeKey is what probes are counted by.
type ProbeKey struct {
	Probe  lb.Probe
	Result flow.ProbeResult
}

// Counts only grow.
type Counts struct {
	Probes    map[ProbeKey]uint64
	Late      uint64 // probes that waited long in line because of Options.Concurrency
	Ejections uint64
	Spared    uint64 // ejections that would have left too few backends
}

func (c *Counts) probe(p lb.Probe, r flow.ProbeResult) {
	if c.Probes == nil {
		c.Probes = make(map[ProbeKey]uint64)
	}
	c.Probes[ProbeKey{p, r}]++
}

// Stats is what metrics show of a Checker.
type Stats struct {
	Counts

	Probed  int // backends that are probed
	Down    int // of those: that are down
	Ejected int // backends that are ejected
	Ramping int // backends that have not got their whole share yet
	Running int // probes
	Waiting int // backends whose probe is due but has to wait in line
}

// Stats copies the counters.
func (c *Checker) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := Stats{Counts: c.counts, Ramping: len(c.ramping), Running: c.running, Waiting: c.line.len()}
	st.Probes = maps.Clone(c.counts.Probes)
	for _, s := range c.services {
		if s.check != nil {
			st.Probed += len(s.backends)
		}
		for _, b := range s.backends {
			if b.probing.down {
				st.Down++
			}
			if b.ejected.now {
				st.Ejected++
			}
		}
	}
	return st
}
