package offload

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/offload/bpf"
)

// settleTime is how long a packet may be half way through a gate. It is there while
// its processor does nothing else, so this is long unless that processor belongs to
// somebody else's guest just then.
const settleTime = time.Millisecond

// freeze takes the flow over if nothing at all is on its way, and reports whether
// there is a verdict. If there is none everything is as before, and it may be tried
// again, though not at once: each time what the peers sent meanwhile was held.
//
// Here the order is the proof. Once the gate is shut and no packet is half way
// through, only what had passed it before can still reach the sockets, and what that
// is is known. A socket that has nothing unread, nothing out of order, nothing
// unacknowledged and no acknowledgement due does nothing by itself; in repair mode it
// cannot even say goodbye. If the highest byte that the gate let through is the last
// one that the socket has, nothing more reaches it; if then nothing is unread, no
// acknowledged byte is lost. Looked at the other way round, the byte may come in
// between the two, acknowledged and read by nobody.
func (a *attempt) freeze() (verdict, bool) {
	a.shut = time.Now()
	// One atomic store. Programs add to enter before they read the gate, so each that
	// did not see it shut has been counted there.
	var s standing
	ok, err := false, errGone // stale: the flow is over, and a new one has begun
	if a.flow.SetGate(bpf.GateFreeze) {
		ok, err = a.inert(&s)
	}
	if ok && err == nil {
		return a.forward(&s), true
	}
	if over := a.thaw(); over != nil {
		return verdict{result: flow.HandoffFailed, why: flow.NotOffloadedFailed, err: errors.Join(err, over)}, true
	}
	if by := a.heldReset(); by != "" {
		return verdict{result: flow.HandoffEnded, why: flow.NotOffloadedPeerGone, reset: by}, true
	}
	switch {
	case errors.Is(err, errGone):
		return verdict{result: flow.HandoffEnded, why: flow.NotOffloadedPeerGone}, true
	case err != nil:
		return verdict{result: flow.HandoffFailed, why: flow.NotOffloadedFailed, err: err}, true
	}
	return verdict{}, false
}

// inert reports whether both sockets are, and what they say of themselves then.
func (a *attempt) inert(s *standing) (bool, error) {
	if !a.settle() {
		return false, nil
	}
	// Reading TCP_INFO takes the socket's lock, and so has the backlog processed.
	if err := errors.Join(a.client.info(&s.clientInfo), a.backend.info(&s.backendInfo)); err != nil {
		return false, err
	}
	if s.clientInfo.State != unix.BPF_TCP_ESTABLISHED || s.backendInfo.State != unix.BPF_TCP_ESTABLISHED {
		return false, errGone
	}
	st := a.flow.State()
	for i := range st.Directions {
		if st.Directions[i].Reset || st.Directions[i].Dirty {
			return false, nil
		}
	}
	if ok, err := a.delivered(); !ok || err != nil {
		return false, err
	}
	for _, sock := range []socket{a.client, a.backend} {
		if n, err := sock.memory(); n > 0 || err != nil {
			return false, err
		}
	}
	if err := errors.Join(a.client.flushACK(), a.backend.flushACK()); err != nil {
		return false, err
	}
	if err := errors.Join(a.client.beginRepair(), a.backend.beginRepair()); err != nil {
		return false, err
	}
	return a.stand(s)
}

// settle waits until no packet is half way through.
func (a *attempt) settle() bool {
	for until := time.Now().Add(settleTime); ; runtime.Gosched() {
		st := a.flow.State()
		c, b := &st.Directions[toBackend], &st.Directions[toClient]
		if c.Enter == c.Leave && b.Enter == b.Leave {
			return true
		}
		if time.Now().After(until) {
			return false
		}
	}
}

// stand reads where two sockets in repair mode stand, and reports whether that is
// where the packets say they do.
func (a *attempt) stand(s *standing) (ok bool, err error) {
	if s.client, err = a.client.sequence(); err != nil {
		return false, err
	}
	if s.backend, err = a.backend.sequence(); err != nil {
		return false, err
	}
	st := a.flow.State()
	fromClient, fromBackend := &st.Directions[toBackend], &st.Directions[toClient]
	if fromClient.HasEnd && fromClient.End != s.client.receive ||
		fromBackend.HasEnd && fromBackend.End != s.backend.receive {
		return false, nil
	}
	if fromClient.FIN || fromBackend.FIN {
		return false, nil // nobody reads it, but the other side has to hear of it
	}
	// The last of it may have come in since we looked, and then nobody has read it.
	if ok, err := a.delivered(); !ok || err != nil {
		return false, err
	}
	if !s.clientInfo.has(optTimestamps) {
		return true, nil
	}
	if s.clientClock, err = a.client.timestamp(); err != nil {
		return false, err
	}
	if s.backendClock, err = a.backend.timestamp(); err != nil {
		return false, err
	}
	s.clientTSval, s.backendTSval = stamp(fromClient), stamp(fromBackend)
	return true, nil
}

// stamp is the oldest TSval that may yet be forwarded: that of the first packet that
// was put aside, if any, else that of the last one that was seen.
func stamp(d *bpf.DirectionState) uint32 {
	if d.HasHeldTSval {
		return d.HeldTSval
	}
	return d.TSval
}

// forward opens the gate to the other side. There is no way back from here.
func (a *attempt) forward(s *standing) verdict {
	toBackend, toClient := s.rewrites()
	a.flow.SetRewrite(bpf.ToBackend, toBackend)
	a.flow.SetRewrite(bpf.ToClient, toClient)
	// Segments may overtake each other from the first one on, and none was seen yet if
	// nobody spoke while the flow was watched.
	a.flow.SetNext(bpf.ToBackend, s.client.receive, s.client.write)
	a.flow.SetNext(bpf.ToClient, s.backend.receive, s.backend.write)
	a.flow.SetGate(bpf.GateForward)
	return verdict{result: flow.HandoffDone, standing: *s, frozen: time.Since(a.shut), reset: a.heldReset()}
}

// heldReset is the side whose reset came to the gate while that was shut, if any: its
// sender does not repeat it.
func (a *attempt) heldReset() flow.By {
	a.settle() // it may be half way through
	st := a.flow.State()
	switch {
	case st.Directions[bpf.ToBackend].HeldReset:
		return flow.ByClient
	case st.Directions[bpf.ToClient].HeldReset:
		return flow.ByBackend
	}
	return ""
}

// thaw makes the sockets live again and lets in what was held, as far as the drain
// does.
func (a *attempt) thaw() error {
	err := errors.Join(a.client.endRepair(), a.backend.endRepair())
	gate := bpf.GateWatch
	if a.draining {
		gate = bpf.GateDrain
	}
	a.flow.SetGate(gate)
	a.freezes++
	return err
}
