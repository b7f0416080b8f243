package relay

import (
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/handoff"
)

// fakeOffloader is an Offloader that hands out local addresses and notes what it
// is told.
type fakeOffloader struct {
	locals []netip.AddrPort // of each lease, in the order of Next; none = the kernel's choice
	refuse flow.NotOffloaded
	hold   bool // what Offer answers

	offers chan handoff.Pair

	mu       sync.Mutex // guards what follows
	leases   []*fakeLease
	carriers []*fakeCarrier
	asked    int // for carriers
}

func newFakeOffloader(locals ...netip.AddrPort) *fakeOffloader {
	return &fakeOffloader{locals: locals, offers: make(chan handoff.Pair, 100)}
}

var _ handoff.Offloader = (*fakeOffloader)(nil)

// fakeLease is one attempt to reach a backend.
type fakeLease struct {
	o       *fakeOffloader
	request handoff.Request

	mu       sync.Mutex // guards what follows
	locals   []netip.AddrPort
	offered  int
	released []flow.Reason
}

func (o *fakeOffloader) Prepare(r handoff.Request) (handoff.Lease, flow.NotOffloaded) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refuse != "" {
		return nil, o.refuse
	}
	l := &fakeLease{o: o, request: r, locals: o.locals}
	o.leases = append(o.leases, l)
	return l, ""
}

// all are the leases so far.
func (o *fakeOffloader) all() []*fakeLease {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]*fakeLease(nil), o.leases...)
}

func (l *fakeLease) Local() netip.AddrPort {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.locals) == 0 {
		return netip.AddrPort{}
	}
	return l.locals[0]
}

func (l *fakeLease) Next() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.locals) < 2 {
		return false
	}
	l.locals = l.locals[1:]
	return true
}

func (l *fakeLease) Offer(p handoff.Pair) (hold bool) {
	l.mu.Lock()
	l.offered++
	l.mu.Unlock()
	l.o.offers <- p
	return l.o.hold
}

func (l *fakeLease) Release(why flow.Reason) {
	l.mu.Lock()
	l.released = append(l.released, why)
	l.mu.Unlock()
}

// fate is how often the lease was offered, and what it was released for.
func (l *fakeLease) fate() (offered int, released []flow.Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.offered, append([]flow.Reason(nil), l.released...)
}

// fakePath carries a flow that was handed over, in place of a kernel.
type fakePath struct {
	ends chan endCall

	mu       sync.Mutex // guards what follows
	counters flow.Counters
}

type endCall struct {
	by  flow.By
	why flow.Reason
}

func newFakePath() *fakePath { return &fakePath{ends: make(chan endCall, 10)} }

var _ flow.Path = (*fakePath)(nil)

func (p *fakePath) Counters() flow.Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counters
}

func (p *fakePath) End(by flow.By, why flow.Reason) { p.ends <- endCall{by, why} }

// carry moves whatever one socket has to another, and counts it.
func (p *fakePath) carry(t testing.TB, from, to int, count *uint64) {
	t.Helper()
	buf := make([]byte, 64<<10)
	fds := []unix.PollFd{{Fd: int32(from), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, int(patience.Milliseconds())); err != nil {
		t.Error(err)
	}
	n, err := unix.Read(from, buf)
	if err == nil {
		n, err = unix.Write(to, buf[:n])
	}
	if err != nil {
		t.Errorf("carry: %v", err)
		return
	}
	p.mu.Lock()
	*count += uint64(n)
	p.mu.Unlock()
}
