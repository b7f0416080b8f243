package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/admin/client"
	"github.com/baton-lb/baton/lb/relay"
	"github.com/baton-lb/baton/lb/store"
)

// The conversation of an upgrade. The next process speaks first; every message but
// the last is answered by one, and whoever gives up closes the pipe:
//
//	begin    →
//	         ← offer              how the instance is
//	taken    →
//	         ← sockets            some, with their descriptors; and again
//	taken    →
//	         ← offered
//	ready    →                    everything is programmed, and nothing taken yet
//	         ← sockets            those of UDP sessions: UDP stands still now
//	taken    →
//	         ← paused             kernel-carried flows and what is pinned are nobody's
//	serving  →                    they are the next one's, and so are lock and socket
//	         ← released           and now everything is
type upgradeMessage struct {
	Step  upgradeStep    `json:"step"`
	Offer *upgradeOffer  `json:"offer,omitempty"`
	Relay []relay.Handed `json:"relay,omitempty"` // with a descriptor each
	Other []otherSocket  `json:"other,omitempty"` // with a descriptor each
	Error string         `json:"error,omitempty"` // with failed
}

type upgradeStep string

const (
	stepBegin    upgradeStep = "begin"
	stepOffer    upgradeStep = "offer"
	stepTaken    upgradeStep = "taken"
	stepSockets  upgradeStep = "sockets"
	stepOffered  upgradeStep = "offered"
	stepReady    upgradeStep = "ready"
	stepPaused   upgradeStep = "paused"
	stepServing  upgradeStep = "serving"
	stepReleased upgradeStep = "released"
	stepFailed   upgradeStep = "failed"
	stepStopping upgradeStep = "stopping" // in place of an offer: it ends, and has nothing to hand over any more
)

// upgradeOffer is how the instance is that hands over.
type upgradeOffer struct {
	Version string       `json:"version"`
	Loops   int          `json:"loops"`
	VIPs    []netip.Addr `json:"vips,omitempty"`    // that have a route of ours
	Drained []string     `json:"drained,omitempty"` // by `baton drain`
}

// otherSocket is a listening socket that is not the relay's.
type otherSocket struct {
	Kind    otherKind `json:"kind"`
	Address string    `json:"address,omitempty"` // as it was asked for
}

type otherKind string

const (
	otherLock     otherKind = "lock"     // of the instance
	otherHTTP     otherKind = "http"     // metrics and health
	otherNode     otherKind = "node"     // questions about the node's health
	otherNodePort otherKind = "nodeport" // a health check node port
)

// predecessor is the instance that an upgrade takes over from, seen by the next one.
// It goes on as before when it is closed before it has released everything.
type predecessor struct {
	pid      int
	pipe     *admin.Pipe
	offer    upgradeOffer
	sockets  []relay.Inherited
	sessions []relay.Inherited
	other    map[otherSocket]*os.File

	released chan struct{} // closed when everything is ours
	once     sync.Once
}

// errStopping is what an instance says that serves nobody any more, and has not ended yet.
var errStopping = errors.New("it is being stopped")

// awaitPredecessor is callPredecessor once an instance that is being stopped has ended.
func (in *instance) awaitPredecessor(ctx context.Context) (*predecessor, error) {
	for told := false; ; told = true {
		p, err := callPredecessor(in.holder())
		if !errors.Is(err, errStopping) {
			return p, err
		}
		if !told {
			in.o.release()
			in.log.Info("waiting for an instance to end", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(stoppingLook):
		}
	}
}

// stoppingLook is how often to see whether it has ended.
const stoppingLook = 200 * time.Millisecond

// callPredecessor asks the instance of this network namespace for everything; nil
// when there is none.
func callPredecessor(me admin.Holder) (_ *predecessor, err error) {
	h, ok, err := admin.FindHolder()
	if err != nil {
		return nil, fmt.Errorf("look for an instance to take over from: %w", err)
	}
	if !ok {
		return nil, nil
	}
	if h.Socket == "" {
		return nil, fmt.Errorf("take over from %s: it does not say where its admin socket is", h)
	}
	c := client.New(h.Socket)
	defer c.Close()
	pipe, err := c.Upgrade(context.Background(), admin.UpgradeRequest{
		Protocol: admin.UpgradeProtocol, Version: version(), PID: os.Getpid(), StateDir: me.StateDir,
	})
	if err != nil {
		return nil, fmt.Errorf("take over from %s: %w", h, err)
	}
	p := &predecessor{pid: h.PID, pipe: pipe, other: make(map[otherSocket]*os.File), released: make(chan struct{})}
	if err := p.takeOffer(); err != nil {
		return nil, errors.Join(fmt.Errorf("take over from %s: %w", h, err), p.Close())
	}
	return p, nil
}

// takeOffer takes the sockets.
func (p *predecessor) takeOffer() error {
	if err := p.pipe.Send(upgradeMessage{Step: stepBegin}); err != nil {
		return err
	}
	return p.takeUntil(stepOffered)
}

// takeUntil takes what is sent until a step is reached.
func (p *predecessor) takeUntil(last upgradeStep) error {
	for {
		var m upgradeMessage
		fds, err := p.pipe.Receive(&m)
		if err != nil {
			return err
		}
		switch {
		case m.Step == stepFailed:
			closeAll(fds)
			return errors.New(m.Error)
		case m.Step == stepStopping:
			closeAll(fds)
			return errStopping
		case len(fds) != len(m.Relay)+len(m.Other):
			closeAll(fds)
			return fmt.Errorf("%d descriptors came with a message about %d", len(fds), len(m.Relay)+len(m.Other))
		case m.Step == last:
			return nil
		}
		p.take(&m, fds)
		if err := p.pipe.Send(upgradeMessage{Step: stepTaken}); err != nil {
			return err
		}
	}
}

func (p *predecessor) take(m *upgradeMessage, fds []int) {
	if m.Offer != nil {
		p.offer = *m.Offer
	}
	for i, what := range m.Relay {
		s := relay.Inherited{Handed: what, FD: fds[i]}
		if what.Kind == relay.HandedSession {
			p.sessions = append(p.sessions, s)
		} else {
			p.sockets = append(p.sockets, s)
		}
	}
	for i, what := range m.Other {
		f := os.NewFile(uintptr(fds[len(m.Relay)+i]), string(what.Kind))
		if old := p.other[what]; old != nil {
			_ = old.Close()
		}
		p.other[what] = f
	}
}

// inheritance is what the relay begins with. It owns the sockets from then on.
func (p *predecessor) inheritance() *relay.Inheritance {
	in := &relay.Inheritance{Loops: p.offer.Loops, VIPs: p.offer.VIPs, Sockets: p.sockets}
	p.sockets = nil
	return in
}

// listener is a listener that came over, which takes nothing before everything is
// ours; nil when it did not come.
func (p *predecessor) listener(what otherSocket) (net.Listener, error) {
	if p == nil || p.other[what] == nil {
		return nil, nil
	}
	l, err := net.FileListener(p.other[what])
	if err != nil {
		return nil, fmt.Errorf("take the listener at %s over: %w", what.Address, err)
	}
	return newHeldListener(l, p.released), nil
}

// drained lists what `baton drain` has drained.
func (p *predecessor) drained() (all []store.Target) {
	for _, text := range p.offer.Drained {
		if t, err := store.ParseTarget(text); err == nil {
			all = append(all, t)
		}
	}
	return all
}

// pause says that we are ready, and takes what stands still from now on.
func (p *predecessor) pause() error {
	if err := p.pipe.Send(upgradeMessage{Step: stepReady}); err != nil {
		return err
	}
	return p.takeUntil(stepPaused)
}

// release says that we serve, and waits until everything is ours. A predecessor that
// dies now has released it all the same.
func (p *predecessor) release() error {
	err := p.pipe.Send(upgradeMessage{Step: stepServing})
	if err == nil {
		err = p.takeUntil(stepReleased)
	}
	if err != nil && unix.Kill(p.pid, 0) == unix.ESRCH {
		err = nil
	}
	return err
}

// open lets the listeners that came over take connections.
func (p *predecessor) open() { close(p.released) }

// takeSessions gives the UDP sessions away.
func (p *predecessor) takeSessions() []relay.Inherited {
	all := p.sessions
	p.sessions = nil
	return all
}

// fail tells the other one why.
func (p *predecessor) fail(why error) {
	select {
	case <-p.released:
	default:
		_ = p.pipe.Send(upgradeMessage{Step: stepFailed, Error: why.Error()})
	}
}

// Close ends the conversation and closes what nobody has use for.
func (p *predecessor) Close() (err error) {
	p.once.Do(func() {
		err = p.pipe.Close()
		for _, s := range append(p.takeSessions(), p.sockets...) {
			unix.Close(s.FD)
		}
		for _, f := range p.other {
			err = errors.Join(err, f.Close())
		}
	})
	return err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
