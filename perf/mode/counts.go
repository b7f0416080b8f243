package mode

import (
	"fmt"
)

// Counter names a count of what was carried.
type Counter string

// The counters. A mode has some of them.
const (
	Flows     Counter = "flows"      // connections, or clients' UDP sockets
	ToBackend Counter = "to backend" // bytes of payload, or more
	ToClient  Counter = "to client"
)

var counters = []Counter{Flows, ToBackend, ToClient}

// Counts is what was carried so far, by those counters that a mode has.
type Counts map[Counter]uint64

// Since is what was carried after before.
func (c Counts) Since(before Counts) Counts {
	d := make(Counts, len(c))
	for k, n := range c {
		d[k] = n - min(n, before[k])
	}
	return d
}

// Cover says why these counts do not show that what is claimed was carried; nil
// when they do. Where a mode has no counter it cannot contradict; where it has
// none at all it shows nothing.
func (c Counts) Cover(claim Counts) error {
	judged := false
	for _, k := range counters {
		got, ok := c[k]
		if !ok {
			continue
		}
		judged = true
		if want := claim[k]; got < want {
			return fmt.Errorf("the mode has counted %d %s, of %d", got, k, want)
		}
	}
	if !judged {
		return fmt.Errorf("the mode has none of the counters %v", counters)
	}
	return nil
}
