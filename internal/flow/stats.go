package flow

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// Stats is what the metrics show of all flows, ended and live.
type Stats struct {
	Active map[ActiveKey]int64
	Ended  map[EndedKey]uint64
	Bytes  map[BytesKey]uint64
}

// ActiveKey labels baton_flows_active.
type ActiveKey struct {
	Service string
	Proto   Proto
	Path    PathName
}

// EndedKey labels baton_flows_total.
type EndedKey struct {
	Service string
	Proto   Proto
	Path    PathName
	By      By
	Reason  Reason
}

// BytesKey labels baton_bytes_total.
type BytesKey struct {
	Service   string
	Direction Direction
	Path      PathName
}

// Direction is where bytes go.
type Direction string

// The directions.
const (
	ToBackend Direction = "to_backend"
	ToClient  Direction = "to_client"
)

// DialFailureKey labels baton_dial_failures_total.
type DialFailureKey struct {
	Service string
	Backend netip.AddrPort
	Reason  DialFailure
}

// dropCounts counts drops by reason without a lock.
type dropCounts struct{ n [32]atomic.Uint64 }

var dropIndex = func() map[Drop]int {
	m := make(map[Drop]int, len(Drops))
	for i, d := range Drops {
		m[d] = i
	}
	return m
}()

func (c *dropCounts) count(d Drop) { c.n[dropIndex[d]].Add(1) }

func (c *dropCounts) snapshot() map[Drop]uint64 {
	m := make(map[Drop]uint64, len(Drops))
	for i, d := range Drops {
		m[d] = c.n[i].Load()
	}
	return m
}

// dialFailures counts failed dials by service, backend and reason.
type dialFailures struct {
	mu sync.Mutex
	m  map[DialFailureKey]uint64
}

func (d *dialFailures) count(k DialFailureKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.m == nil {
		d.m = make(map[DialFailureKey]uint64)
	}
	d.m[k]++
}

func (d *dialFailures) snapshot() map[DialFailureKey]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := make(map[DialFailureKey]uint64, len(d.m))
	for k, v := range d.m {
		m[k] = v
	}
	return m
}

// forget drops the counts that keep says nobody asks for any more.
func (d *dialFailures) forget(keep func(service string, backend netip.AddrPort) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range d.m {
		if !keep(k.Service, k.Backend) {
			delete(d.m, k)
		}
	}
}
