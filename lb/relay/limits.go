package relay

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// limits counts what lb.Limits bounds, for one service. It outlives reloads, so
// that a changed limit meets the connections that are open.
type limits struct {
	sessions atomic.Int64 // UDP

	mu        sync.Mutex // guards what follows
	open      int
	perClient map[netip.Addr]int
	rate      *rate.Limiter
	perSecond int // what rate was made for
}

// admit counts one more connection, or says which limit forbids it.
func (l *limits) admit(now time.Time, client netip.Addr, max lb.Limits) (flow.Drop, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if max.Connections > 0 && l.open >= max.Connections {
		return flow.DropLimit, false
	}
	if max.PerClient > 0 && l.perClient[client] >= max.PerClient {
		return flow.DropLimitClient, false
	}
	if !l.inRateLocked(now, max.NewPerSecond) {
		return flow.DropLimitRate, false
	}
	l.enterLocked(client)
	return "", true
}

// enter counts one more connection whatever the limits are: it is there already.
func (l *limits) enter(client netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enterLocked(client)
}

func (l *limits) enterLocked(client netip.Addr) {
	l.open++
	if l.perClient == nil {
		l.perClient = make(map[netip.Addr]int)
	}
	l.perClient[client]++
}

// inRateLocked allows perSecond new connections in any second, with a burst of
// as many.
func (l *limits) inRateLocked(now time.Time, perSecond int) bool {
	if perSecond == 0 {
		l.rate, l.perSecond = nil, 0
		return true
	}
	if l.perSecond != perSecond {
		l.rate, l.perSecond = rate.NewLimiter(rate.Limit(perSecond), perSecond), perSecond
	}
	return l.rate.AllowN(now, 1)
}

// leave counts one connection less.
func (l *limits) leave(client netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.perClient[client]--; l.perClient[client] <= 0 {
		delete(l.perClient, client)
	}
}

// idle reports whether nothing is counted.
func (l *limits) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open == 0
}

// limitTable finds the limits of a service by name.
type limitTable struct {
	m sync.Map // string → *limits

	gone map[string]struct{} // services to be forgotten; for the caller of forget only
}

func (t *limitTable) of(service string) *limits {
	if l, ok := t.m.Load(service); ok {
		return l.(*limits)
	}
	l, _ := t.m.LoadOrStore(service, new(limits))
	return l.(*limits)
}

// forget drops the counts of services that are gone, once they are zero: of those
// that have changed, and of those for which it was too early before.
func (t *limitTable) forget(changed []string, known func(service string) bool) {
	if t.gone == nil {
		t.gone = make(map[string]struct{})
	}
	for _, name := range changed {
		t.gone[name] = struct{}{}
	}
	for name := range t.gone {
		l, ok := t.m.Load(name)
		switch {
		case !ok || known(name):
			delete(t.gone, name)
		case l.(*limits).idle():
			t.m.Delete(name)
			delete(t.gone, name)
		}
	}
}
