package flow

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	client   = netip.MustParseAddrPort("192.0.2.7:40000")
	frontend = netip.MustParseAddrPort("10.96.0.10:80")
	one      = netip.MustParseAddrPort("10.0.0.1:8080")
	two      = netip.MustParseAddrPort("10.0.0.2:8080")
	start    = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
)

// clock is a registry's time.
type clock struct{ d atomic.Int64 }

func (c *clock) now() time.Time          { return start.Add(time.Duration(c.d.Load())) }
func (c *clock) advance(d time.Duration) { c.d.Add(int64(d)) }

func web() Spec { return Spec{Proto: TCP, Service: "web", Client: client, Frontend: frontend} }

// fakePath carries what it is told to.
type fakePath struct {
	toBackend, toClient atomic.Uint64
	ended               atomic.Int32
	record              *Record // finished by End, when set
}

func (p *fakePath) Counters() Counters {
	return Counters{BytesToBackend: p.toBackend.Load(), BytesToClient: p.toClient.Load()}
}

func (p *fakePath) End(by By, reason Reason) {
	p.ended.Add(1)
	if p.record != nil {
		p.record.Finish(by, reason)
	}
}

func pathOf(toBackend, toClient uint64) *fakePath {
	p := &fakePath{}
	p.toBackend.Store(toBackend)
	p.toClient.Store(toClient)
	return p
}
