package affinity

import (
	"net/netip"
	"sync"
	"time"
)

// DefaultMax is the default bound of a Table: about 25 MiB when it is full.
const DefaultMax = 1 << 18

// Options configures a Table. The zero value works.
type Options struct {
	Max int // entries; 0 = DefaultMax
}

// Table remembers the backends of the clients of one service. One IPv4 client is
// the same whether its address is IPv4-mapped or not.
type Table struct {
	max int // immutable

	mu      sync.Mutex // guards what follows
	base    time.Time  // what entries count from: the time of the first one
	index   map[[16]byte]ref
	entries slab
	evicted uint64
}

// New makes an empty table.
func New(o Options) *Table {
	if o.Max <= 0 {
		o.Max = DefaultMax
	}
	return &Table{max: o.Max, index: make(map[[16]byte]ref)}
}

// Get is the backend that the client was given last, unless its last new flow
// is timeout ago. It does not count as a new flow.
func (t *Table) Get(client netip.Addr, now time.Time, timeout time.Duration) (backend netip.AddrPort, ok bool) {
	key := client.As16()
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.index[key]
	if !ok {
		return netip.AddrPort{}, false
	}
	e := t.entries.at(r)
	if now.Sub(t.base)-e.last >= timeout {
		return netip.AddrPort{}, false
	}
	return e.addrPort(), true
}

// Set notes a new flow of the client to backend. When the table is full it
// evicts the client that has had no new flow for the longest time.
func (t *Table) Set(client netip.Addr, backend netip.AddrPort, now time.Time) {
	if !client.IsValid() || !backend.IsValid() {
		return
	}
	key := client.As16()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.base.IsZero() {
		t.base = now
	}
	r, ok := t.index[key]
	switch {
	case ok:
		t.entries.unlink(r)
	case len(t.index) >= t.max:
		t.removeLocked(t.entries.oldest)
		t.evicted++
		fallthrough
	default:
		r = t.entries.take()
		t.index[key] = r
		t.entries.at(r).client = key
	}
	e := t.entries.at(r)
	e.setAddrPort(backend)
	e.last = now.Sub(t.base)
	t.entries.pushNewest(r)
}

// Len is the number of entries, expired ones included until Expire.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.index)
}

// Evicted is how many entries made room for newer ones.
func (t *Table) Evicted() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.evicted
}

// removeLocked forgets an entry.
func (t *Table) removeLocked(r ref) {
	delete(t.index, t.entries.at(r).client)
	t.entries.unlink(r)
	t.entries.give(r)
}
