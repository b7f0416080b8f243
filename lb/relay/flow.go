package relay

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/lb/relay/poll"
	"github.com/baton-lb/baton/lb/relay/pump"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/store"
)

// phase is where a tcpFlow stands:
//
//	header → dialing → open → aborting → closed
//	            ↓         ↓
//	          closed    closed
//
// A flow that an Offloader has stopped is open with stopped set, one that waits
// for it with held.
type phase uint8

const (
	phaseNew      phase = iota
	phaseHeader         // acceptProxy: waiting for the PROXY header
	phaseDialing        // waiting for a backend
	phaseOpen           // bytes move
	phaseAborting       // one leg is broken: the other gets what came before, then a reset
	phaseClosed
)

// moveBudget is how many bytes one direction may move in one round of its loop:
// some 50 µs worth, so that a hundred flows at full speed keep another one
// waiting for a few milliseconds.
const moveBudget = 256 << 10

// tcpFlow is one client connection and its connection to a backend. It belongs
// to one worker's loop; other goroutines use only what the last group holds.
type tcpFlow struct {
	w      *worker
	fe     *store.Frontend
	peer   netip.AddrPort // who has connected: the client, or a proxy before us
	client netip.AddrPort // as believed
	local  netip.AddrPort // what it connected to
	asked  netip.AddrPort // what the client connected to, as believed
	rec    *flow.Record

	front, back leg
	toBackend   pump.Half
	toClient    pump.Half
	phase       phase
	queued      bool // in the loop's list of things to run soon
	held        bool // no byte moves until an Offloader has stopped the flow: see hold
	stopped     bool // an Offloader holds the descriptors
	settled     bool // see settle
	seenFirst   [2]bool
	timer       poll.Timer
	changed     int64 // when bytes last moved or a side closed, as poll.Loop.Nano

	// Dialling.
	tried     []*sched.Backend
	lease     handoff.Lease
	shown     showing
	dialTry   int
	dialStart int64
	failed    flow.DialFailure // the last one
	blamed    bool             // one of them was a backend's fault

	// Aborting.
	broken   *leg
	endedBy  flow.By
	reason   flow.Reason
	lingered time.Duration
	unsent   int  // bytes that the whole leg had not acknowledged at the last look
	pending  bool // an end came while stopped: endedBy and reason say which

	successor flow.Path // what carries the flow after a handover

	mu       sync.Mutex // guards the descriptors against counters taken elsewhere
	gone     bool       // the descriptors are closed or given away
	bytes    [2]atomic.Uint64
	lastSeen atomic.Int64 // Unix nanoseconds
	packets  [2]uint64    // guarded by mu: final counts, once gone
}

// Indices of the two directions.
const (
	toBackend = iota
	toClient
)

// leg is one of the two sockets.
type leg struct {
	f      *tcpFlow
	fd     int // -1 = none
	by     flow.By
	broken bool // the loop has reported an error, and nobody has asked which
	pauses bool // its peer takes nothing, and the kernel does not mind: see checkPeer
}

var (
	_ poll.Handler = (*leg)(nil)
	_ poll.Runner  = (*tcpFlow)(nil)
	_ flow.Path    = (*tcpFlow)(nil)
)

func newTCPFlow(w *worker, fe *store.Frontend, fd int, peer, local netip.AddrPort) *tcpFlow {
	f := &tcpFlow{w: w, fe: fe, peer: peer, client: peer, local: local, asked: local}
	f.front = leg{f: f, fd: fd, by: flow.ByClient}
	f.back = leg{f: f, fd: -1, by: flow.ByBackend}
	f.timer.Fire = f.onTimer
	f.toBackend = pump.NewHalf(fd, -1)
	f.toClient = pump.NewHalf(-1, fd)
	return f
}

// begin makes the connection a flow, if its client may have one.
func (f *tcpFlow) begin() {
	f.open()
	if !permitted(f.fe, f.client.Addr()) {
		f.refuse(flow.ByBaton, flow.ReasonDenied, flow.DropDenied)
		return
	}
	lim := f.w.r.limits.of(f.fe.Service.Name)
	if why, ok := lim.admit(f.w.loop.Now(), f.client.Addr(), f.fe.Service.Limits); !ok {
		f.refuse(flow.ByBaton, flow.ReasonLimit, why)
		return
	}
	client := f.client.Addr()
	f.rec.WhenEnded(func() { lim.leave(client) })
	f.dialNext()
}

// open lists the flow.
func (f *tcpFlow) open() {
	f.rec = f.w.r.registry.Open(flow.Spec{
		Proto: flow.TCP, Service: f.fe.Service.Name, Frontend: f.asked, Client: f.client,
	})
	f.rec.Attach(flow.PathUserspace, f)
}

// Ready is called by the loop when a leg can be read or written, or has broken.
func (l *leg) Ready(ev poll.Events) {
	f := l.f
	in, out := &f.toBackend, &f.toClient
	if l == &f.back {
		in, out = out, in
	}
	if ev&(poll.In|poll.RdHup|poll.Hup|poll.Err) != 0 {
		in.Readable = true
	}
	if ev&(poll.RdHup|poll.Hup|poll.Err) != 0 {
		in.Ended = true
	}
	if ev&poll.Pri != 0 {
		in.Urgent = true
	}
	l.broken = l.broken || ev&poll.Err != 0
	if ev&(poll.Out|poll.Hup|poll.Err) != 0 {
		out.Writable = true
	}
	switch f.phase {
	case phaseHeader:
		f.readHeader()
	case phaseDialing:
		f.readyWhileDialing(l, ev)
	case phaseOpen, phaseAborting:
		if f.held && ev&(poll.RdHup|poll.Hup|poll.Err) != 0 {
			f.unhold()
		}
		f.move()
	}
}

// Run goes on moving after other flows have had their turn.
func (f *tcpFlow) Run() {
	f.queued = false
	if f.phase == phaseOpen || f.phase == phaseAborting {
		f.move()
	}
}

// established begins the relay.
func (f *tcpFlow) established() {
	f.phase = phaseOpen
	f.tried = nil
	f.changed = f.w.loop.Nano()
	f.rec.Dialled()
	if f.lease != nil && f.lease.Offer(pair{f}) && f.whole() {
		f.hold()
		return
	}
	f.armIdle()
	f.move()
}

// move moves what can be moved, both ways.
func (f *tcpFlow) move() {
	if f.stopped || f.held {
		return
	}
	f.noticeBroken(&f.front)
	f.noticeBroken(&f.back)
	if f.phase == phaseClosed {
		return
	}
	f.toBackend.Last = f.toClient.Done()
	f.moveHalf(&f.toBackend, toBackend, &f.front, &f.back)
	if f.phase == phaseOpen || f.phase == phaseAborting {
		f.toClient.Last = f.toBackend.Done()
		f.moveHalf(&f.toClient, toClient, &f.back, &f.front)
	}
	switch {
	case f.phase == phaseOpen && f.toBackend.Done() && f.toClient.Done():
		f.closeCleanly()
	case f.phase == phaseAborting:
		f.linger()
	}
}

func (f *tcpFlow) moveHalf(h *pump.Half, dir int, src, dst *leg) {
	if h.Done() {
		return
	}
	before := h.Moved()
	st, err := h.Move(f.w.kit, moveBudget)
	if h.Moved() != before {
		f.moved(h, dir, src)
	}
	switch {
	case err != nil:
		f.moveFailed(err, src, dst)
	case st == pump.More:
		f.runSoon()
	case st == pump.Done && f.phase == phaseOpen:
		f.halfClosed(src)
	}
}

func (f *tcpFlow) moveFailed(err error, src, dst *leg) {
	se := err.(*pump.SideError) // Move returns no other
	if se.Side == pump.Source {
		f.breaks(src, se.Err)
	} else {
		f.breaks(dst, se.Err)
	}
}

// moved counts what a direction has delivered.
func (f *tcpFlow) moved(h *pump.Half, dir int, src *leg) {
	f.changed = f.w.loop.Nano()
	f.lastSeen.Store(f.w.loop.Now().UnixNano())
	f.bytes[dir].Store(h.Moved())
	if !f.seenFirst[dir] {
		f.seenFirst[dir] = true
		f.rec.FirstByte(src.by)
	}
}

// halfClosed notes that one side has closed its direction and the other has
// been told so.
func (f *tcpFlow) halfClosed(src *leg) {
	if f.endedBy == "" {
		f.endedBy = src.by // who closed first
		f.changed = f.w.loop.Nano()
		f.rec.HalfClosed(src.by)
		f.armIdle()
	}
}

func (f *tcpFlow) runSoon() {
	if !f.queued {
		f.queued = true
		f.w.loop.Soon(f)
	}
}

// onTimer fires in every phase; what it means depends on that.
func (f *tcpFlow) onTimer() {
	switch f.phase {
	case phaseHeader:
		f.badHeader()
	case phaseDialing:
		f.dialTimedOut()
	case phaseOpen:
		f.openTimer()
	case phaseAborting:
		f.move()
	}
}

// refuse ends a flow that never got a backend, with a reset.
func (f *tcpFlow) refuse(by flow.By, why flow.Reason, drop flow.Drop) {
	if drop != "" {
		f.w.r.registry.Drop(drop)
	}
	f.abort(by, why)
}

// close ends the flow and whatever it holds: with a reset of both sides, see
// setLingerReset.
func (f *tcpFlow) close(by flow.By, why flow.Reason) {
	if f.phase == phaseClosed {
		return
	}
	f.detach()
	f.mu.Lock()
	f.samplePacketsLocked()
	f.gone = true
	f.mu.Unlock()
	f.closeLeg(&f.front)
	f.closeLeg(&f.back)
	f.leave()
	f.releaseLease(why)
	if f.rec != nil {
		f.rec.Finish(by, why)
	}
}

// detach takes the flow out of its loop.
func (f *tcpFlow) detach() {
	f.phase = phaseClosed
	f.w.loop.Disarm(&f.timer)
	f.toBackend.Drop(f.w.kit)
	f.toClient.Drop(f.w.kit)
}

// leave gives back the flow's place in its worker.
func (f *tcpFlow) leave() {
	delete(f.w.flows, f)
	f.w.loop.Load().Add(-1)
	f.w.r.budget.put(perFlow)
	f.w.tryResume()
}

func (f *tcpFlow) closeLeg(l *leg) {
	if l.fd < 0 {
		return
	}
	f.w.loop.Forget(l.fd)
	unix.Close(l.fd)
	l.fd = -1
}

// End asks for a reset of both sides; it implements flow.Path. Whoever asks may
// have looked the path up just before the flow was handed over.
func (f *tcpFlow) End(by flow.By, why flow.Reason) {
	f.w.loop.Post(func() {
		if f.successor != nil {
			f.successor.End(by, why)
			return
		}
		f.abort(by, why)
	})
}
