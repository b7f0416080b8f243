package flow

import "time"

// Counters is what a flow has carried. Bytes are L4 payload, each delivered byte
// counted once; packets are wire packets (a GSO packet counts its segments).
type Counters struct {
	BytesToBackend, BytesToClient     uint64
	PacketsToBackend, PacketsToClient uint64
	LastSeen                          time.Time // of the last payload byte; zero = none yet
}

// Add sums c and d and keeps the later LastSeen.
func (c Counters) Add(d Counters) Counters {
	c.BytesToBackend += d.BytesToBackend
	c.BytesToClient += d.BytesToClient
	c.PacketsToBackend += d.PacketsToBackend
	c.PacketsToClient += d.PacketsToClient
	if d.LastSeen.After(c.LastSeen) {
		c.LastSeen = d.LastSeen
	}
	return c
}

// Sub takes an earlier state d of c from c.
func (c Counters) Sub(d Counters) Counters {
	c.BytesToBackend -= d.BytesToBackend
	c.BytesToClient -= d.BytesToClient
	c.PacketsToBackend -= d.PacketsToBackend
	c.PacketsToClient -= d.PacketsToClient
	return c
}

// Path carries the packets of one flow: userspace, BPF, a flowtable.
type Path interface {
	// Counters is what this path has carried of the flow so far. It must not
	// block, nor call into this package.
	Counters() Counters
	// End asks the path to end the flow, with a reset to both peers where the
	// protocol has one. It returns at once; the path calls Record.Finish when
	// done. Asking again, or too late, does nothing.
	End(by By, reason Reason)
}
