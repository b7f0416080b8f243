package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/lb/relay"
)

// pauseTimeout is how long each step of the other process may take while UDP stands
// still.
const pauseTimeout = 10 * time.Second

// handing is the state of an upgrade, seen by the instance that hands over:
//
//	none → under way → none: it has failed, and nothing has happened
//	                 ↘ done: another process has everything
type handing struct {
	done chan struct{} // closed then

	mu       sync.Mutex // guards what follows
	pipe     *admin.Pipe
	stopping bool
}

// begin notes that an upgrade is under way; false: there is to be none.
func (h *handing) begin(p *admin.Pipe) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopping {
		return false
	}
	h.pipe = p
	return true
}

func (h *handing) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pipe = nil
}

// abort ends an upgrade that is under way, for a stop does not wait for it, and lets
// none begin.
func (h *handing) abort() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
	if h.pipe != nil {
		_ = h.pipe.Close()
	}
}

// isUnderWay reports whether another process is taking over.
func (h *handing) isUnderWay() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pipe != nil
}

// isDone reports whether another process has everything.
func (h *handing) isDone() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// handOver gives everything that clients and operators meet to another process.
// When that fails this one goes on as before.
func (in *instance) handOver(p *admin.Pipe, req admin.UpgradeRequest) {
	if !in.handing.begin(p) {
		if expect(p, stepBegin) == nil {
			_ = p.Send(upgradeMessage{Step: stepStopping})
		}
		return
	}
	defer in.handing.end()
	log := in.log.With("pid", req.PID, "version", req.Version)
	log.Info("another process takes over")
	if err := in.handOverTo(p); err != nil {
		_ = p.Send(upgradeMessage{Step: stepFailed, Error: err.Error()})
		log.Warn("the other process has not taken over: serving goes on here", "err", err)
		return
	}
	close(in.handing.done)
	if err := p.Send(upgradeMessage{Step: stepReleased}); err != nil {
		log.Error("the process that has taken over may not know it", "err", err)
	}
}

// handOverTo comes as far as to the moment before the last message.
func (in *instance) handOverTo(p *admin.Pipe) (err error) {
	if err := in.lifecycle.Ready(); err != nil {
		return err
	}
	if err := expect(p, stepBegin); err != nil {
		return err
	}
	h, err := in.relay.Handover()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			h.Resume()
		}
	}()
	if err := in.offer(p, h); err != nil {
		return err
	}
	if err := expect(p, stepReady); err != nil {
		return err
	}
	in.handoffAll()
	return in.letGo(p, h)
}

// leaveTimeout is how long a handover waits for flows to leave userspace.
const leaveTimeout = 3 * time.Second

// handoffAll has whatever can leave userspace leave it: in the kernel a flow goes on when
// this process ends, however long it has been quiet.
func (in *instance) handoffAll() {
	ctx, cancel := context.WithTimeout(in.ctx, leaveTimeout)
	defer cancel()
	if n := in.kernel.handoffAll(ctx); n > 0 {
		in.log.Info("flows were handed off, so that they need no process", "flows", n)
	}
}

// offer sends what the other process needs to serve, and goes on serving.
func (in *instance) offer(p *admin.Pipe, h *relay.Handover) error {
	offer := &upgradeOffer{Version: version(), Loops: h.Loops(), VIPs: h.VIPs()}
	for _, t := range in.store.Drained() {
		offer.Drained = append(offer.Drained, t.String())
	}
	if err := ask(p, upgradeMessage{Step: stepOffer, Offer: offer}); err != nil {
		return err
	}
	if err := in.offerOthers(p); err != nil {
		return err
	}
	if err := h.Sockets(sendSockets(p)); err != nil {
		return err
	}
	return p.Send(upgradeMessage{Step: stepOffered})
}

// offerOthers sends the listening sockets that are not the relay's.
func (in *instance) offerOthers(p *admin.Pipe) error {
	lock, err := in.lock.File()
	if err != nil {
		return fmt.Errorf("hand the instance lock over: %w", err)
	}
	if err := sendOther(p, otherSocket{Kind: otherLock}, lock); err != nil {
		return err
	}
	listeners := make(map[otherSocket]net.Listener)
	if l := in.admin.TCPListener(); l != nil {
		listeners[otherSocket{otherHTTP, in.http}] = l
	}
	if l := in.admin.NodeListener(); l != nil {
		listeners[otherSocket{otherNode, in.kube.health}] = l
	}
	for at, l := range in.nodePorts.Listeners() {
		listeners[otherSocket{otherNodePort, at.String()}] = l
	}
	for what, l := range listeners {
		f, err := listenerFile(l)
		if err != nil {
			return fmt.Errorf("hand the listener at %s over: %w", what.Address, err)
		}
		if err := sendOther(p, what, f); err != nil {
			return err
		}
	}
	return nil
}

// sendOther sends a copy of a descriptor, and closes it.
func sendOther(p *admin.Pipe, what otherSocket, f *os.File) error {
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var askErr error
	err = raw.Control(func(fd uintptr) {
		askErr = ask(p, upgradeMessage{Step: stepSockets, Other: []otherSocket{what}}, int(fd))
	})
	return errors.Join(err, askErr)
}

func sendSockets(p *admin.Pipe) func([]relay.Handed, []int) error {
	return func(what []relay.Handed, fds []int) error {
		return ask(p, upgradeMessage{Step: stepSockets, Relay: what}, fds...)
	}
}

// letGo stops with what only one process can do at a time, and, when the other one
// has taken that over, with everything else. The order of the end: what the other
// one answers, its guard lets through already, and connections wait in queues that
// both have.
func (in *instance) letGo(p *admin.Pipe, h *relay.Handover) (err error) {
	if in.aside, err = in.admin.SetAside(); err != nil {
		in.log.Warn("the flows that stay here cannot be looked at", "err", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.admin.Keep(), in.lock.Reclaim())
		}
	}()
	p.SetTimeout(pauseTimeout)
	if err := h.PauseUDP(); err != nil {
		return err
	}
	if err := h.Sessions(sendSockets(p)); err != nil {
		return err
	}
	if err := p.Send(upgradeMessage{Step: stepPaused}); err != nil {
		return err
	}
	if err := expect(p, stepServing); err != nil {
		return err
	}
	if err := in.kernel.letGo(); err != nil {
		in.log.Warn("the kernel path was not let go of cleanly", "err", err)
	}
	in.admin.LeaveTCP()
	if in.guard != nil {
		err = in.guard.bpf.Close()
	}
	h.Release()
	err = errors.Join(err, in.nodePorts.Close(), in.lock.Close())
	if err != nil {
		in.log.Warn("not everything was let go of", "err", err)
	}
	return nil
}

// ask sends a message and waits until it has been taken.
func ask(p *admin.Pipe, m upgradeMessage, fds ...int) error {
	if err := p.Send(m, fds...); err != nil {
		return err
	}
	return expect(p, stepTaken)
}

// expect waits for a step of the other process.
func expect(p *admin.Pipe, want upgradeStep) error {
	var m upgradeMessage
	fds, err := p.Receive(&m)
	closeAll(fds)
	switch {
	case err != nil:
		return fmt.Errorf("wait for %q: %w", want, err)
	case m.Step == stepFailed:
		return fmt.Errorf("it says: %s", m.Error)
	case m.Step != want:
		return fmt.Errorf("it says %q where %q was expected", m.Step, want)
	}
	return nil
}
