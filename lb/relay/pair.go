package relay

import (
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/handoff"
)

// pair is a tcpFlow as an Offloader sees it.
type pair struct{ f *tcpFlow }

var _ handoff.Pair = pair{}

func (p pair) Record() *flow.Record { return p.f.rec }

// do runs what concerns the flow where nothing else does: on its loop, or, once
// the relay is closed, here.
func (p pair) do(what func()) {
	w := p.f.w
	if w.loop.Call(what) == nil {
		return
	}
	<-w.ended
	w.late.Lock()
	defer w.late.Unlock()
	what()
}

func (p pair) Stop() (s handoff.Stopped, ok bool) {
	f := p.f
	p.do(func() {
		if f.phase == phaseOpen && !f.stopped {
			s, ok = f.stop()
		}
	})
	return s, ok
}

func (p pair) Moved(toBackend, toClient uint64) {
	f := p.f
	p.do(func() {
		if f.stopped {
			f.countMoved([2]uint64{toBackend, toClient})
		}
	})
}

func (p pair) Resume(toBackend, toClient []byte) {
	f := p.f
	p.do(func() {
		if !f.stopped {
			return
		}
		f.stopped = false
		f.rec.StaysHere()
		if f.pending {
			f.abort(f.endedBy, f.reason)
			return
		}
		f.watchPeers()
		f.toBackend.Resume(toBackend)
		f.toClient.Resume(toClient)
		f.armIdle()
		f.move()
	})
}

func (p pair) HandedOff(name flow.PathName, path flow.Path) {
	f := p.f
	p.do(func() {
		if f.stopped {
			f.handedOff(name, path)
		}
	})
}

// stop empties both directions. The sockets stay watched: what they report is
// remembered, and acted on after Resume.
func (f *tcpFlow) stop() (handoff.Stopped, bool) {
	toBackend, err := f.toBackend.Stop(f.w.kit)
	if err == nil {
		var toClient []byte
		if toClient, err = f.toClient.Stop(f.w.kit); err == nil {
			f.held, f.stopped = false, true
			f.rec.HandingOff()
			return handoff.Stopped{
				ClientFD: f.front.fd, BackendFD: f.back.fd,
				ToBackend: toBackend, ToClient: toClient,
				ClientEOF: f.toBackend.EOF(), BackendEOF: f.toClient.EOF(),
			}, true
		}
	}
	// A pipe that cannot be read has lost bytes: an honest reset is all that is left.
	f.abort(flow.ByBaton, flow.ReasonLocalResources)
	return handoff.Stopped{}, false
}

// handedOff forgets a flow that somebody else carries from now on.
func (f *tcpFlow) handedOff(name flow.PathName, path flow.Path) {
	f.mu.Lock()
	f.samplePacketsLocked()
	f.gone = true
	f.mu.Unlock()
	f.w.r.carried.hold(f.local.Addr(), f.rec) // before it can end
	f.rec.Attach(name, path)
	f.w.loop.Remove(f.front.fd)
	f.w.loop.Remove(f.back.fd)
	f.stopped, f.successor = false, path
	f.detach()
	f.leave()
	if f.pending {
		path.End(f.endedBy, f.reason)
	}
}
