package offload

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
)

// queue has a flow tried as soon as there is room; waiter, if any, is told how that
// ended. It reports false when the flow is not there any more.
func (o *Offloader) queue(l *lease, waiter chan verdict) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case leaseWaiting, leaseSettled:
		o.mu.Lock()
		noMore := o.noMore
		if !noMore {
			o.queued = append(o.queued, l)
		}
		o.mu.Unlock()
		if noMore {
			return false
		}
		l.state = leaseQueued
		o.poke()
	case leaseQueued, leaseTrying:
	default:
		return false
	}
	if waiter != nil {
		l.waiters = append(l.waiters, waiter)
	}
	return true
}

// dispatch begins attempts while there is room for them.
func (o *Offloader) dispatch() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queued) > 0 && o.trying < mostTrying && !o.noMore {
		l := o.queued[0]
		o.queued[0] = nil
		o.queued = o.queued[1:]
		o.trying++
		o.tasks.Go(func() {
			o.try(l)
			o.mu.Lock()
			o.trying--
			more := len(o.queued) > 0
			o.mu.Unlock()
			if more {
				o.poke()
			}
		})
	}
}

// tryNoMore gives up all attempts that have not begun. Their flows may be held for
// them.
func (o *Offloader) tryNoMore() {
	o.mu.Lock()
	o.noMore = true
	queued := o.queued
	o.queued = nil
	o.mu.Unlock()
	for _, l := range queued {
		l.mu.Lock()
		pair := l.pair
		waiters := l.takeWaitersLocked()
		if l.state == leaseQueued {
			l.state = leaseSettled
		}
		l.mu.Unlock()
		if l.policy.Mode == lb.OffloadAlways {
			letGo(pair)
		}
		tell(waiters, verdict{result: flow.HandoffBusy, why: flow.NotOffloadedBusy})
	}
}

// try makes one attempt.
func (o *Offloader) try(l *lease) {
	l.mu.Lock()
	if l.state != leaseQueued {
		waiters := l.takeWaitersLocked()
		l.mu.Unlock()
		tell(waiters, verdict{result: flow.HandoffEnded, why: flow.NotOffloadedPeerGone})
		return
	}
	l.state = leaseTrying
	pair, tries, asked := l.pair, l.tries, len(l.waiters) > 0
	l.tries++
	l.mu.Unlock()

	_, force, _ := retryAfter(tries, l.policy.Mode == lb.OffloadAlways)
	v := l.attempt(pair, force || asked)
	if v.why == flow.NotOffloadedUnseen && tries > 0 {
		v.result = flow.HandoffRefused // an answer may be late once
	}
	if v.err != nil {
		o.log.Warn("hand flow off", "flow", l.record.ID(), "err", v.err)
	}
	o.result(v.result)
	if v.result == flow.HandoffDone {
		o.observe(&v)
	}
	l.settle(v)
}

// attempt tries, and leaves the flow either in the kernel or as it was.
func (l *lease) attempt(pair handoff.Pair, force bool) verdict {
	local, v, ok := l.approach()
	if !ok {
		if l.policy.Mode == lb.OffloadAlways {
			letGo(pair) // it may be held
		}
		return v
	}
	l.o.standing <- struct{}{}
	stopped, ok := pair.Stop()
	if !ok {
		<-l.o.standing
		return verdict{result: flow.HandoffEnded, why: flow.NotOffloadedPeerGone}
	}
	l.mu.Lock()
	f := l.flow
	l.mu.Unlock()
	a := newAttempt(f, stopped, force, time.Now())
	v = l.stand(a, &stopped, local)
	<-l.o.standing
	if v.result != flow.HandoffDone {
		pair.Moved(a.moved[toBackend], a.moved[toClient])
		pair.Resume(a.rest[toBackend], a.rest[toClient])
		if v.reset != "" {
			l.record.End(v.reset, flow.ReasonReset) // its socket has not heard of it
		}
		if (a.draining || a.freezes > 0) && l.o.graces.wait() == nil {
			l.o.unpark(f)
		}
		return v
	}
	l.leave(pair, a, &v)
	return v
}

// stand has a flow that stands still tried on the thread, if it is what it was taken
// for.
func (l *lease) stand(a *attempt, stopped *handoff.Stopped, local netip.AddrPort) (v verdict) {
	switch bound, err := localOf(a.backend); {
	case stopped.ClientEOF || stopped.BackendEOF:
		v = verdict{result: flow.HandoffEnded, why: flow.NotOffloadedPeerGone}
	case err != nil:
		v = verdict{result: flow.HandoffFailed, why: flow.NotOffloadedFailed, err: err}
	case bound != local:
		l.unwatch() // the route has changed since the dial
		v = verdict{result: flow.HandoffBusy, why: flow.NotOffloadedBusy}
		l.setBound(bound)
	default:
		if v = l.o.thread.try(a); v.result == flow.HandoffBusy && a.dirty() {
			l.unwatch() // what went unaccounted for stays so for as long as the flow is watched
		}
	}
	return v
}

// letGo lets a pair's bytes flow that may have been held since it was offered.
func letGo(pair handoff.Pair) {
	if s, ok := pair.Stop(); ok {
		pair.Resume(s.ToBackend, s.ToClient)
	}
}

// approach does what can be done before the flow stands still: it looks whether the
// kernel can reach both peers, and has it watch the flow. From the end of a grace
// period on nothing reaches the sockets that was not seen.
func (l *lease) approach() (local netip.AddrPort, v verdict, ok bool) {
	refused := func(why flow.NotOffloaded) (netip.AddrPort, verdict, bool) {
		return local, verdict{result: flow.HandoffRefused, why: why}, false
	}
	if why := l.o.routes.check(l.client.Addr(), l.backend.Addr()); why != "" {
		return refused(why)
	}
	l.mu.Lock()
	watched := l.flow != nil
	local = l.bound
	l.mu.Unlock()
	if !local.IsValid() {
		if local = l.local; !local.Addr().IsValid() {
			source, err := l.o.routes.source(l.backend.Addr())
			if err != nil {
				return refused(flow.NotOffloadedDevice)
			}
			local = netip.AddrPortFrom(source, l.local.Port())
		}
		l.setBound(local)
	}
	if watched && !l.forgetResets() {
		return local, v, true
	}
	if !watched {
		switch why := l.watch(local); why {
		case "":
		case flow.NotOffloadedTaken: // by an earlier flow of the same client port, until that is forgotten
			return local, verdict{result: flow.HandoffBusy, why: why}, false
		default:
			return refused(why)
		}
	}
	if err := l.o.graces.wait(); err != nil {
		return local, verdict{result: flow.HandoffFailed, why: flow.NotOffloadedFailed, err: err}, false
	}
	return local, v, true
}

// forgetResets reports whether resets were seen while the flow was watched. A peer that
// has sent one is gone, but anybody can make one up who knows addresses and ports. The
// socket knows: after a grace period whatever came by has met it, and it has died or not.
func (l *lease) forgetResets() bool {
	l.mu.Lock()
	f := l.flow
	l.mu.Unlock()
	if st := f.State(); !st.Directions[toBackend].Reset && !st.Directions[toClient].Reset {
		return false
	}
	f.ForgetReset()
	return true
}

func (l *lease) setBound(local netip.AddrPort) {
	l.mu.Lock()
	l.bound = local
	l.mu.Unlock()
}

// leave ends the sockets of a flow that the kernel forwards. Until the grace period is
// over a packet may be on its way to them that passed the gate before it was shut.
func (l *lease) leave(pair handoff.Pair, a *attempt, v *verdict) {
	p := l.o.newPath(l, a, v)
	l.o.addPath(p)
	if err := a.flow.SetNote(p.note.marshal()); err != nil {
		l.o.log.Warn("keep note of flow", "flow", l.record.ID(), "err", err)
	}
	l.o.unpark(a.flow)
	if err := l.o.graces.wait(); err != nil {
		v.err = errors.Join(v.err, err)
		time.Sleep(graceless)
	}
	l.o.unpark(a.flow)
	l.mu.Lock()
	l.state = leaseAway
	l.mu.Unlock()
	pair.Moved(a.moved[toBackend], a.moved[toClient])
	pair.HandedOff(flow.PathBPF, p)
	v.err = errors.Join(v.err, unix.Close(int(a.client)), unix.Close(int(a.backend)))
	l.o.tracking.forget(a.spec)
	if v.reset != "" {
		p.reset(v.reset, flow.ReasonReset) // before it is found to be over, and only one side knows
	}
	p.attach()
}

// graceless is far more than any packet takes through the stack.
const graceless = 100 * time.Millisecond

func localOf(s socket) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(int(s))
	if err != nil {
		return netip.AddrPort{}, err
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, unix.EAFNOSUPPORT
}

// settle decides what follows from a verdict.
func (l *lease) settle(v verdict) {
	if v.result == flow.HandoffDone {
		l.o.remove(l)
		l.mu.Lock()
		waiters := l.takeWaitersLocked()
		l.mu.Unlock()
		tell(waiters, v)
		return
	}
	l.record.NotOffloaded(v.why)
	l.mu.Lock()
	wait, _, again := retryAfter(l.tries, l.policy.Mode == lb.OffloadAlways)
	again = again && v.result != flow.HandoffRefused && v.why != flow.NotOffloadedPeerGone
	over := l.state == leaseOver
	switch {
	case over:
	case again:
		l.state = leaseWaiting
	default:
		l.state = leaseSettled
	}
	waiters := l.takeWaitersLocked()
	l.mu.Unlock()
	switch {
	case over:
		l.end()
	case again:
		l.o.wheel.set(&l.alarm, l.o.now().Add(wait))
	default:
		l.unwatch()
	}
	tell(waiters, v)
}

func (l *lease) takeWaitersLocked() []chan verdict {
	w := l.waiters
	l.waiters = nil
	return w
}

func tell(waiters []chan verdict, v verdict) {
	for _, w := range waiters {
		w <- v // of one place
	}
}
