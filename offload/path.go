package offload

import (
	"cmp"
	"net/netip"
	"sync"
	"time"

	"github.com/baton-lb/baton/internal/clock"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/offload/bpf"
)

// path is a TCP flow that the kernel carries, until the kernel has forgotten it. A
// flow that is over stays in the kernel for a while: late packets of it are not to
// meet a stack that knows nothing of it.
type path struct {
	// Immutable.
	o       *Offloader
	flow    Flow
	spec    bpf.FlowSpec
	note    note
	lent    bool         // its source port is one of ours
	record  *flow.Record // nil = an earlier process had ended it, or nobody knows it
	adopted bool         // from an earlier process

	alarm alarm

	seen seen

	mu         sync.Mutex // guards what follows
	attached   bool       // the record's path: before that nothing is judged
	unsureAt   time.Time  // both sides were seen to have closed, and nobody had said who was first; zero = not so
	over       bool       // the record is finished
	deleted    bool
	halfClosed bool
	closedBy   flow.By       // who closed first
	overAt     time.Time     // when it was found to be over
	linger     time.Duration // without a packet, before it is forgotten
}

// seen is when bytes were last seen to move, as far as anybody has looked. Its lock is
// a leaf: a record reads the counters under its own.
type seen struct {
	mu    sync.Mutex
	bytes uint64
	at    time.Duration // CLOCK_MONOTONIC
	last  bpf.FlowState // as long as it could be read
}

// How long a flow is looked after that is over.
const (
	closedLinger = 5 * time.Second  // its peers may not have heard each other's last words
	resetLinger  = 2 * time.Second  // a reset is said once
	endedLinger  = 10 * time.Second // peers that we have reset are told so again when they send
	mostLinger   = time.Minute
	sweep        = 10 * time.Second // how often a flow is looked at without an event
	unsureWait   = time.Second      // for the event that says who closed first
)

var _ flow.Path = (*path)(nil)

// newPath is the path of a flow that has just been handed off.
func (o *Offloader) newPath(l *lease, a *attempt, v *verdict) *path {
	n := l.note()
	n.HandedOffAt = o.now()
	view := l.record.View()
	n.Base = flow.Counters{
		BytesToBackend: view.BytesToBackend + a.moved[toBackend], BytesToClient: view.BytesToClient + a.moved[toClient],
		PacketsToBackend: view.PacketsToBackend, PacketsToClient: view.PacketsToClient, LastSeen: view.LastSeenAt,
	}
	st := &v.standing
	n.ToClientNext, n.ToBackendNext = st.client.write, st.backend.write
	n.ToClientDelta, n.ToBackendDelta = st.client.write-st.backend.receive, st.backend.write-st.client.receive
	p := &path{o: o, flow: a.flow, spec: a.spec, note: n, lent: !l.transparent, record: l.record}
	p.seen.at = clock.Monotonic()
	p.alarm.ring = p.look
	return p
}

// addPath makes a flow known to those who follow events.
func (o *Offloader) addPath(p *path) {
	o.mu.Lock()
	o.paths[p.flow] = p
	o.mu.Unlock()
}

// attach begins to look after a flow that has left userspace.
func (p *path) attach() {
	p.mu.Lock()
	p.attached = true
	p.mu.Unlock()
	p.look(p.o.now())
}

// with does something with the flow unless the kernel is closed.
func (p *path) with(do func(Flow)) bool {
	p.o.alive.RLock()
	defer p.o.alive.RUnlock()
	if p.o.gone {
		return false
	}
	do(p.flow)
	return true
}

// state is what the kernel knows of the flow, or knew when it was closed.
func (p *path) state() (st bpf.FlowState, moved time.Duration) {
	s := &p.seen
	s.mu.Lock()
	defer s.mu.Unlock()
	p.with(func(f Flow) { s.last = f.State() })
	c, b := &s.last.Directions[toBackend], &s.last.Directions[toClient]
	if n := c.Bytes + b.Bytes; n != s.bytes {
		s.bytes, s.at = n, max(c.At, b.At)
	}
	return s.last, s.at
}

// Counters implements flow.Path.
func (p *path) Counters() flow.Counters {
	st, moved := p.state()
	return countersOf(&st, moved)
}

func countersOf(st *bpf.FlowState, moved time.Duration) flow.Counters {
	c, b := &st.Directions[toBackend], &st.Directions[toClient]
	counters := flow.Counters{
		BytesToBackend: c.Bytes, BytesToClient: b.Bytes, PacketsToBackend: c.Packets, PacketsToClient: b.Packets,
	}
	if c.Bytes+b.Bytes > 0 {
		counters.LastSeen = clock.Wall(moved)
	}
	return counters
}

// live reports whether the flow has a record that goes on.
func (p *path) live() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record != nil && !p.over
}

// look finds out whether the flow is over, and what is due.
func (p *path) look(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deleted || !p.attached {
		return
	}
	st, moved := p.state()
	if !p.over {
		p.judgeLocked(&st, moved, now)
	}
	if p.over && p.forgetLocked(&st, now) {
		return
	}
	p.o.wheel.set(&p.alarm, now.Add(p.untilLookLocked()))
}

// judgeLocked ends the record of a flow that is over, and the flow if it has been
// idle for too long.
func (p *path) judgeLocked(st *bpf.FlowState, moved time.Duration, now time.Time) {
	c, b := &st.Directions[toBackend], &st.Directions[toClient]
	if p.closedBy == "" {
		p.closedBy = closedFirst(c, b)
	}
	switch {
	case c.Reset:
		p.finishLocked(flow.ByClient, flow.ReasonReset, resetLinger)
	case b.Reset:
		p.finishLocked(flow.ByBackend, flow.ReasonReset, resetLinger)
	case c.FINAcked && b.FINAcked && p.unsureLocked(now):
		// The event is on its way, unless it is lost.
	case c.FINAcked && b.FINAcked:
		p.finishLocked(cmp.Or(p.closedBy, flow.ByClient), flow.ReasonClosed, closedLinger)
	case st.Gate == bpf.GateStale:
		// A new flow has begun with its addresses, which only a client does that
		// knows nothing of this one any more.
		p.finishLocked(flow.ByClient, flow.ReasonClosed, 0)
	default:
		p.judgeIdleLocked(st, clock.Monotonic()-moved)
	}
}

// unsureLocked reports whether nobody has said who closed first of both, and still may:
// events that came before that one are looked at before it.
func (p *path) unsureLocked(now time.Time) bool {
	if p.closedBy != "" {
		return false
	}
	if p.unsureAt.IsZero() {
		p.unsureAt = now
	}
	return now.Sub(p.unsureAt) < unsureWait
}

// closedFirst is who has closed its direction; "" if nobody has, or both.
func closedFirst(c, b *bpf.DirectionState) flow.By {
	switch {
	case b.FIN && !c.FIN:
		return flow.ByBackend
	case c.FIN && !b.FIN:
		return flow.ByClient
	}
	return ""
}

func (p *path) judgeIdleLocked(st *bpf.FlowState, idle time.Duration) {
	limit, by, why := p.note.Idle, flow.ByBaton, flow.ReasonIdle
	if p.closedBy != "" {
		limit, why = p.note.HalfClosed, flow.ReasonHalfClosedIdle
		if !p.halfClosed {
			p.halfClosed = true
			if p.record != nil {
				p.record.HalfClosed(p.closedBy)
			}
			p.seen.touch() // the end of a direction counts as its last byte
			return
		}
	}
	if limit <= 0 || idle < limit {
		return
	}
	if lost := p.lost(st); lost != "" && why == flow.ReasonIdle {
		by, why = lost, flow.ReasonPeerLost
	}
	p.resetLocked(by, why)
}

// lost is the side that has not acknowledged what it was sent, if one has not: it was
// not idle, it is gone.
func (p *path) lost(st *bpf.FlowState) flow.By {
	c, b := &st.Directions[toBackend], &st.Directions[toClient]
	switch {
	case owes(c, b, p.note.ToBackendDelta):
		return flow.ByBackend
	case owes(b, c, p.note.ToClientDelta):
		return flow.ByClient
	}
	return ""
}

// owes reports whether the end of what was sent in one direction is beyond what came
// back for it in the other, whose numbers are delta further on.
func owes(sent, said *bpf.DirectionState, delta uint32) bool {
	return sent.HasEnd && sent.Forwarded && said.HasAck && int32(sent.End+delta-said.Ack) > 0
}

func (s *seen) touch() {
	s.mu.Lock()
	s.at = max(s.at, clock.Monotonic())
	s.mu.Unlock()
}

// untilLookLocked is when the flow has to be looked at again, events aside.
func (p *path) untilLookLocked() time.Duration {
	switch {
	case p.over:
		return p.linger
	case !p.unsureAt.IsZero():
		return unsureWait
	}
	limit := p.note.Idle
	if p.closedBy != "" {
		limit = p.note.HalfClosed
	}
	if limit <= 0 {
		return sweep
	}
	p.seen.mu.Lock()
	idle := clock.Monotonic() - p.seen.at
	p.seen.mu.Unlock()
	return min(max(limit-idle, 0), sweep)
}

// finishLocked ends the record.
func (p *path) finishLocked(by flow.By, why flow.Reason, linger time.Duration) {
	p.over, p.overAt, p.linger = true, p.o.now(), linger
	p.note.Ended = true
	p.with(func(f Flow) {
		if err := f.SetNote(p.note.marshal()); err != nil {
			p.o.log.Debug("note the end of flow", "flow", p.note.ID, "err", err)
		}
	})
	if p.record != nil {
		p.record.Finish(by, why)
	}
}

// forgetLocked takes a flow out of the kernel that is over and has been silent for
// long enough.
func (p *path) forgetLocked(st *bpf.FlowState, now time.Time) bool {
	silent := clock.Monotonic() - max(st.Directions[toBackend].At, st.Directions[toClient].At)
	over := now.Sub(p.overAt)
	if st.Gate != bpf.GateStale && over < mostLinger && (over < p.linger || silent < p.linger) {
		return false
	}
	var err error
	if !p.with(func(f Flow) { err = f.Delete() }) {
		return true
	}
	if err != nil {
		p.o.log.Warn("delete flow", "flow", p.note.ID, "err", err)
	}
	p.deleted = true
	p.o.wheel.clear(&p.alarm)
	p.o.mu.Lock()
	delete(p.o.paths, p.flow)
	p.o.mu.Unlock()
	if p.lent {
		p.o.rest(p.spec.Local, p.spec.Backend)
	}
	return true
}

// note is what the next process has to know of the flow.
func (l *lease) note() note {
	v := l.record.View()
	n := note{
		ID: l.record.ID(), Service: l.record.Service(), Picked: v.Picked, StartedAt: v.StartedAt,
		Idle: l.timeouts.Idle, HalfClosed: l.timeouts.HalfClosed, SeenAs: v.ClientAddress, NotTransparent: v.NotTransparent,
	}
	if asked := l.record.Key().Frontend(); asked != l.frontend {
		n.Asked = asked
	}
	if client := l.record.Key().Client(); client != l.client {
		n.Client = client
	}
	return n
}

// asked is the flow's client leg as its record shows it.
func (n *note) asked(s *bpf.FlowSpec) (client, frontend netip.AddrPort) {
	client, frontend = s.Client, s.Frontend
	if n.Client.IsValid() {
		client = n.Client
	}
	if n.Asked.IsValid() {
		frontend = n.Asked
	}
	return client, frontend
}

// lent reports whether the flow's source port is one of ours. That of a client who is
// shown to the backend is not.
func (n *note) lent(s *bpf.FlowSpec) bool {
	client, _ := n.asked(s)
	return s.Local.Addr() != client.Addr()
}

// seenAs is what the backend sees of the client, also when the process died before it
// could write that down.
func (n *note) seenAs(s *bpf.FlowSpec) flow.ClientAddress {
	client, _ := n.asked(s)
	switch {
	case n.SeenAs != "":
		return n.SeenAs
	case s.Local == client:
		return flow.ClientTransparent
	case s.Local.Addr() == client.Addr():
		return flow.ClientPortChanged
	}
	return ""
}
