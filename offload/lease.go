package offload

import (
	"errors"
	"net/netip"
	"sync"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/offload/bpf"
)

// leaseState is where a lease stands:
//
//	lent → waiting ⇄ queued → trying → away
//	  ↓       ↓        ↓        ↓
//	over    over     over     waiting, settled or over
//
// A settled flow stays in userspace unless somebody asks for it.
type leaseState uint8

const (
	leaseLent leaseState = iota
	leaseWaiting
	leaseQueued
	leaseTrying
	leaseSettled
	leaseAway
	leaseOver
)

// lease is one flow's source port, and its way into the kernel.
type lease struct {
	// Immutable after Prepare.
	o            *Offloader
	record       *flow.Record
	client       netip.AddrPort
	frontend     netip.AddrPort
	backend      netip.AddrPort
	policy       lb.Offload
	timeouts     lb.Timeouts
	early        bool // watched before the dial
	noTimestamps bool
	noSACK       bool
	transparent  bool // the port is the client's, not lent

	// The flow's event loop's until Offer, immutable after.
	local netip.AddrPort
	moves int

	alarm alarm

	mu      sync.Mutex // guards what follows
	state   leaseState
	pair    handoff.Pair
	flow    Flow           // nil = not watched
	bound   netip.AddrPort // local, with the address that the kernel has chosen
	tries   int
	waiters []chan verdict // who has asked for it
}

// mostMoves is how many ports are tried for one dial. A port that turns out to be
// taken is somebody else's, who did not ask the kernel; that is rare.
const mostMoves = 16

// Prepare implements handoff.Offloader.
func (o *Offloader) Prepare(r handoff.Request) (handoff.Lease, flow.NotOffloaded) {
	if why := excluded(r.Policy, true); why != "" {
		return nil, why
	}
	if o.left.Load() {
		return nil, flow.NotOffloadedUnavailable
	}
	l := &lease{
		o: o, record: r.Record, policy: r.Policy, timeouts: r.Timeouts,
		client: unmap(r.Client), frontend: unmap(r.Frontend), backend: unmap(r.Backend),
	}
	l.alarm.ring = l.look
	if why := l.askClient(r.ClientFD); why != "" {
		return nil, why
	}
	if r.Transparent.IsValid() {
		l.transparent, l.local = true, unmap(r.Transparent)
	} else if !l.lend() {
		return nil, flow.NotOffloadedNoPort
	}
	l.early = r.Policy.Mode == lb.OffloadAlways || l.noTimestamps || l.noSACK
	if l.early {
		why := l.watchEarly()
		if why == flow.NotOffloadedTaken && !l.noTimestamps && !l.noSACK {
			why = "" // it need not be watched yet, and what is in its way goes
		}
		if why != "" {
			l.giveBack()
			return nil, why
		}
	}
	return l, ""
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// askClient looks at what can be known of the flow before its backend is dialled.
func (l *lease) askClient(fd int) flow.NotOffloaded {
	if l.client.Addr().IsLoopback() || l.backend.Addr().IsLoopback() || l.client.Addr() == l.frontend.Addr() {
		return flow.NotOffloadedHostLocal
	}
	if l.client.Addr().Is4() != l.backend.Addr().Is4() {
		return flow.NotOffloadedUnavailable // nothing in the kernel translates one family into the other
	}
	var info tcpInfo
	if err := socket(fd).info(&info); err != nil {
		return flow.NotOffloadedFailed
	}
	if info.Options&(optECN|optECNSeen) != 0 {
		return flow.NotOffloadedECN
	}
	l.noTimestamps, l.noSACK = !info.has(optTimestamps), !info.has(optSACK)
	return ""
}

func (l *lease) lend() (ok bool) {
	l.local, ok = l.o.ports.take(l.backend)
	return ok
}

// giveBack returns the port, which nothing has used.
func (l *lease) giveBack() {
	if !l.transparent {
		l.o.ports.give(l.local, l.backend)
	}
}

// watchEarly puts the flow into the kernel before the dial. Its addresses must be
// known for that.
func (l *lease) watchEarly() flow.NotOffloaded {
	if !l.local.Addr().IsValid() {
		source, err := l.o.routes.source(l.backend.Addr())
		if err != nil {
			return flow.NotOffloadedDevice
		}
		l.local = netip.AddrPortFrom(source, l.local.Port())
	}
	return l.watch(l.local)
}

// watch puts the flow into the kernel.
func (l *lease) watch(local netip.AddrPort) flow.NotOffloaded {
	f, err := l.o.addFlow(l.spec(local), bpf.GateWatch)
	if err != nil {
		l.o.log.Debug("watch flow", "flow", l.record.ID(), "err", err)
		return whyNotAdded(err)
	}
	l.mu.Lock()
	l.flow = f
	l.mu.Unlock()
	return ""
}

func whyNotAdded(err error) flow.NotOffloaded {
	switch {
	case errors.Is(err, bpf.ErrTaken):
		return flow.NotOffloadedTaken
	case errors.Is(err, bpf.ErrFull):
		return flow.NotOffloadedTableFull
	}
	return flow.NotOffloadedFailed
}

func (l *lease) spec(local netip.AddrPort) bpf.FlowSpec {
	n := l.note()
	return bpf.FlowSpec{
		Proto: flow.TCP, Client: l.client, Frontend: l.frontend, Local: local, Backend: l.backend,
		NoTimestamps: l.noTimestamps, NoSACK: l.noSACK, Note: n.marshal(),
	}
}

// unwatch takes the flow out of the kernel.
func (l *lease) unwatch() {
	l.mu.Lock()
	f := l.flow
	l.flow = nil
	l.mu.Unlock()
	l.o.alive.RLock()
	defer l.o.alive.RUnlock()
	if f == nil || l.o.gone {
		return // the next process takes away what only was watched
	}
	if err := f.Delete(); err != nil {
		l.o.log.Warn("stop watching flow", "flow", l.record.ID(), "err", err)
	}
}

// Local implements handoff.Lease.
func (l *lease) Local() netip.AddrPort { return l.local }

// Next implements handoff.Lease. The port that was taken is left alone for a while.
func (l *lease) Next() bool {
	if l.moves++; l.moves >= mostMoves || l.transparent {
		return false
	}
	taken := l.local
	l.unwatch()
	if !l.lend() {
		l.local = taken
		return false
	}
	l.o.rest(taken, l.backend)
	if l.early {
		_ = l.watchEarly() // else it is watched when it is tried
	}
	return true
}

// Offer implements handoff.Lease.
func (l *lease) Offer(p handoff.Pair) (hold bool) {
	l.mu.Lock()
	l.pair, l.state = p, leaseWaiting
	l.mu.Unlock()
	l.o.add(l)
	if l.policy.Mode == lb.OffloadAlways {
		return l.o.queue(l, nil)
	}
	l.record.NotOffloaded(flow.NotOffloadedWaiting)
	l.o.wheel.set(&l.alarm, l.o.now().Add(max(l.policy.AfterAge, 0)))
	return false
}

// Release implements handoff.Lease.
func (l *lease) Release(flow.Reason) {
	l.mu.Lock()
	before := l.state
	l.state = leaseOver
	l.mu.Unlock()
	if before != leaseLent {
		l.o.wheel.clear(&l.alarm)
		l.o.remove(l)
	}
	if before != leaseTrying { // else whoever tries does the rest
		l.end()
	}
}

// end gives everything back. The port is free once nothing in the kernel has it.
func (l *lease) end() {
	l.unwatch()
	l.giveBack()
}
