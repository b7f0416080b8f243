package pick

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/baton-lb/baton/affinity"
)

// table is the clients of one service.
type table struct {
	*affinity.Table
	timeout atomic.Int64 // the service's, when a flow last committed
}

// tables is the table of each service that has remembered a client.
type tables struct {
	max int // immutable: entries of each

	mu     sync.RWMutex // guards what follows; writers hold it for a moment only
	byName map[string]*table
}

// get is the table of a service, or nil.
func (t *tables) get(name string) *table {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byName[name]
}

// set remembers a client.
func (t *tables) set(name string, client netip.Addr, backend netip.AddrPort, now time.Time, timeout time.Duration) {
	for !t.trySet(name, client, backend, now, timeout) {
		t.make(name)
	}
}

// trySet reports false when the service has no table. It holds mu, so that the
// table stays while the client goes into it.
func (t *tables) trySet(name string, client netip.Addr, backend netip.AddrPort, now time.Time, timeout time.Duration) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	tab := t.byName[name]
	if tab == nil {
		return false
	}
	if tab.timeout.Load() != int64(timeout) {
		tab.timeout.Store(int64(timeout))
	}
	tab.Set(client, backend, now)
	return true
}

func (t *tables) make(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName == nil {
		t.byName = make(map[string]*table)
	}
	if t.byName[name] == nil {
		t.byName[name] = &table{Table: affinity.New(affinity.Options{Max: t.max})}
	}
}

func (t *tables) drop(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byName, name)
}

// names copies the names of all tables.
func (t *tables) names() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]string, 0, len(t.byName))
	for name := range t.byName {
		out = append(out, name)
	}
	return out
}

// dropEmpty forgets a table that remembers nobody.
func (t *tables) dropEmpty(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tab := t.byName[name]; tab != nil && tab.Len() == 0 {
		delete(t.byName, name)
	}
}
