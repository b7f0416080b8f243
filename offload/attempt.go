package offload

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/offload/bpf"
)

// Directions, as indices.
const (
	toBackend = int(bpf.ToBackend)
	toClient  = int(bpf.ToClient)
)

// attempt is one try to hand a flow over whose bytes stand still. The thread has it
// until its verdict.
type attempt struct {
	// Immutable.
	flow            Flow
	spec            bpf.FlowSpec // of the flow: to ask for it is a system call
	client, backend socket
	began           time.Time
	verdicts        chan verdict // of one place: the thread never waits

	// The thread's.
	force    bool      // hold new data back until the rest is delivered
	rest     [2][]byte // read on one side, not yet written on the other
	moved    [2]uint64 // bytes written, by the thread
	sides    [2]side   // of the client, of the backend
	rounds   int
	freezes  int
	shut     time.Time // when the last freeze began
	late     int       // rounds in which packets of the last freeze are let out
	thawed   time.Time // no freeze before
	draining bool
	probed   time.Time // when the peers were last provoked
	next     time.Time // when to look again
	deadline time.Time
	pause    time.Duration
}

// verdict is how an attempt has ended.
type verdict struct {
	result   flow.HandoffResult
	why      flow.NotOffloaded
	err      error
	standing standing // when it is done
	reset    flow.By  // this side's reset came in while everything was held
	stood    time.Duration
	frozen   time.Duration // when it is done: from the shutting of the gate to its opening to the other side
}

// How long an attempt may take, and how it waits.
const (
	gentleTime = 20 * time.Millisecond  // beside the time of a few round trips
	forcedTime = 300 * time.Millisecond // likewise
	mostTime   = 1500 * time.Millisecond
	firstPause = 50 * time.Microsecond
	mostPause  = 2 * time.Millisecond
	firstThaw  = time.Millisecond      // doubled with every freeze that failed
	probePause = 20 * time.Millisecond // a peer that does not answer a probe at once is far away

	watchRounds = 3 // before anything is held

	// A flow that moves so much during an attempt, or anything for so many rounds (some
	// 5 ms), will not come to rest by itself: to hold it back for a moment costs it less
	// than to go on in steps.
	bulk       = 128 << 10
	busyRounds = 8

	pumpBudget = 256 << 10
)

func newAttempt(f Flow, s handoff.Stopped, force bool, began time.Time) *attempt {
	return &attempt{
		flow: f, client: socket(s.ClientFD), backend: socket(s.BackendFD), spec: f.Spec(),
		force: force, began: began, verdicts: make(chan verdict, 1),
		rest: [2][]byte{s.ToBackend, s.ToClient},
	}
}

// errGone says that one side has closed or reset meanwhile.
var errGone = errors.New("one side has closed or reset")

// begin looks whether the flow may leave at all. It is the first step: what the
// kernel does by itself with an idle connection must not happen from here on.
func (a *attempt) begin(now time.Time) (verdict, bool) {
	if err := errors.Join(a.client.relax(), a.backend.relax()); err != nil {
		return verdict{result: flow.HandoffFailed, why: flow.NotOffloadedFailed, err: err}, true
	}
	is6 := a.spec.Client.Addr().Is6()
	for i, s := range []socket{a.client, a.backend} {
		var err error
		if a.sides[i], err = s.inspect(is6); err != nil {
			return verdict{result: flow.HandoffFailed, why: flow.NotOffloadedFailed, err: err}, true
		}
	}
	switch why := whyNot(&a.sides[0], &a.sides[1]); why {
	case "":
	case flow.NotOffloadedPeerGone:
		return verdict{result: flow.HandoffEnded, why: why}, true
	default:
		return verdict{result: flow.HandoffRefused, why: why}, true
	}
	trip := max(a.sides[0].trip(), a.sides[1].trip())
	limit := gentleTime
	if a.force {
		limit = forcedTime
	}
	a.deadline = now.Add(min(limit+3*trip, mostTime))
	return verdict{}, false
}

// step moves the attempt on by one round, and reports whether there is a verdict.
func (a *attempt) step(now time.Time, buf []byte) (verdict, bool) {
	a.rounds++
	if a.rounds == 1 {
		if v, over := a.begin(now); over {
			return v, true
		}
	}
	quiet, err := a.pump(buf)
	switch {
	case errors.Is(err, errGone):
		return verdict{result: flow.HandoffEnded, why: flow.NotOffloadedPeerGone}, true
	case err != nil:
		return verdict{result: flow.HandoffFailed, why: flow.NotOffloadedFailed, err: err}, true
	}
	st := a.flow.State()
	switch {
	case st.Directions[toBackend].Reset || st.Directions[toClient].Reset:
		// A socket that has believed it is about to say so; else the next try forgets it.
		return verdict{result: flow.HandoffBusy, why: flow.NotOffloadedBusy}, true
	case quiet && a.sampled(&st) && !now.Before(a.thawed):
		if v, over := a.freeze(); over {
			return v, true
		}
		// What is sent again must come through before the next try.
		a.thawed = now.Add(firstThaw << min(a.freezes, 5))
	case now.After(a.deadline):
		return a.tooLate(&st), true
	default:
		if err := a.hurry(now, quiet); err != nil {
			return verdict{result: flow.HandoffFailed, why: flow.NotOffloadedFailed, err: err}, true
		}
	}
	a.pause = min(max(firstPause, 2*a.pause), mostPause)
	a.next = now.Add(a.pause)
	return verdict{}, false
}

// sampled reports whether the kernel has seen a packet from each side, and with it a
// timestamp where there are any.
func (a *attempt) sampled(st *bpf.FlowState) bool {
	stamps := a.sides[0].info.has(optTimestamps)
	for i := range st.Directions {
		if d := &st.Directions[i]; !d.HasAck || stamps && !d.HasTSval {
			return false
		}
	}
	return true
}

// dirty reports whether a packet went to the stack that the kernel's numbers do not
// account for.
func (a *attempt) dirty() bool {
	st := a.flow.State()
	return st.Directions[toBackend].Dirty || st.Directions[toClient].Dirty
}

// tooLate is the verdict when no quiet moment was found in time.
func (a *attempt) tooLate(st *bpf.FlowState) verdict {
	if !a.sampled(st) && !a.draining {
		return verdict{result: flow.HandoffBusy, why: flow.NotOffloadedUnseen}
	}
	return verdict{result: flow.HandoffBusy, why: flow.NotOffloadedBusy}
}

// hurry makes the quiet moment come. A peer may put its acknowledgement off, or have
// nothing to say: a probe makes it answer. One that never stops sending has to be
// held.
func (a *attempt) hurry(now time.Time, quiet bool) error {
	if a.rounds < watchRounds {
		return nil
	}
	if moved := a.moved[toBackend] + a.moved[toClient]; !a.force && (moved >= bulk || moved > 0 && a.rounds >= busyRounds) {
		a.force = true
		a.deadline = a.deadline.Add(forcedTime)
	}
	if a.force && !quiet && !a.draining {
		a.draining = true
		a.flow.SetGate(bpf.GateDrain)
		a.pause = 0
		return nil
	}
	if !quiet && !a.draining || now.Sub(a.probed) < probePause {
		return nil
	}
	a.probed = now
	return errors.Join(a.client.provoke(), a.backend.provoke())
}

// pump moves what can be moved, and reports whether nothing is on its way: nothing in
// our hands, nothing unread, nothing that a peer has not acknowledged.
func (a *attempt) pump(buf []byte) (quiet bool, err error) {
	if err := errors.Join(a.alive(a.client), a.alive(a.backend)); err != nil {
		return false, err
	}
	if err := a.pumpOne(toBackend, a.client, a.backend, buf); err != nil {
		return false, err
	}
	if err := a.pumpOne(toClient, a.backend, a.client, buf); err != nil {
		return false, err
	}
	if len(a.rest[toBackend]) > 0 || len(a.rest[toClient]) > 0 {
		return false, nil
	}
	return a.delivered()
}

func (a *attempt) alive(s socket) error {
	var i tcpInfo
	if err := s.info(&i); err != nil {
		return err
	}
	if i.State != unix.BPF_TCP_ESTABLISHED {
		return errGone
	}
	return nil
}

// delivered reports whether both sockets have nothing unread and nothing
// unacknowledged.
func (a *attempt) delivered() (bool, error) {
	for _, s := range []socket{a.client, a.backend} {
		for _, waiting := range []func() (int, error){s.unread, s.unacknowledged} {
			if n, err := waiting(); n > 0 || err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

func (a *attempt) pumpOne(dir int, from, to socket, buf []byte) error {
	for budget := pumpBudget; budget > 0; {
		if len(a.rest[dir]) > 0 {
			n, err := to.write(a.rest[dir])
			a.rest[dir] = a.rest[dir][n:]
			a.moved[dir] += uint64(n)
			budget -= n
			if err == unix.EAGAIN || err == nil && len(a.rest[dir]) > 0 {
				return nil
			}
			if err != nil {
				return errGone
			}
		}
		waiting, err := from.unread()
		if waiting == 0 || err != nil {
			return err
		}
		n, err := from.read(buf[:min(waiting, len(buf))])
		switch {
		case err == unix.EAGAIN:
			return nil
		case err != nil || n == 0:
			return errGone
		}
		if a.rest[dir], err = a.pass(dir, to, buf[:n]); err != nil {
			return err
		}
		budget -= n
	}
	return nil
}

// pass writes b and returns a copy of what there was no room for.
func (a *attempt) pass(dir int, to socket, b []byte) (rest []byte, err error) {
	n, err := to.write(b)
	a.moved[dir] += uint64(n)
	if n < len(b) {
		rest = append(rest, b[n:]...)
	}
	if err != nil && err != unix.EAGAIN {
		return rest, errGone
	}
	return rest, nil
}

// abandon lets everything through again. That the kernel watches over both peers is for
// Resume to see to: whether one of them pauses may have changed meanwhile.
func (a *attempt) abandon() {
	if a.draining {
		a.flow.SetGate(bpf.GateWatch)
	}
}
