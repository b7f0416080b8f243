package relay

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
)

// udpSockets hands over the sockets of UDP frontends. Those of one frontend are a
// group among which the kernel spreads clients: the next relay has as many loops,
// and each takes the socket of the one before it, with its clients.
func (h *Handover) udpSockets(each func([]Handed, []int) error) error {
	all := make([]*udpListener, 0, len(h.r.listeners.udp))
	for _, l := range h.r.listeners.udp {
		all = append(all, l)
	}
	for i, w := range h.r.workers {
		for some := range slices.Chunk(all, handedBatch) {
			var out handing
			var err error
			_ = w.loop.Call(func() {
				for _, l := range some {
					if s := l.socks[i]; s != nil && !s.closed && err == nil {
						err = out.add(Handed{Kind: HandedUDP, Frontend: l.key.Address, Loop: i}, s.fd)
					}
				}
			})
			if err != nil {
				out.drop()
				return err
			}
			if err := out.pass(each); err != nil {
				return err
			}
		}
	}
	return nil
}

// PauseUDP stops to take datagrams, from clients and from backends, and writes
// down the sessions as they are.
func (h *Handover) PauseUDP() error {
	h.paused = true
	for _, w := range h.r.workers {
		_ = w.loop.Call(w.udp.pause)
	}
	return h.r.saveSessions(true)
}

func (h *Handover) resumeUDP() {
	h.r.saved.reopen()
	for _, w := range h.r.workers {
		_ = w.loop.Call(w.udp.resume)
	}
}

// Sessions calls each with a few sessions at a time, after PauseUDP. The
// descriptors are those of their sockets to backends; they are closed when it
// returns.
func (h *Handover) Sessions(each func([]Handed, []int) error) error {
	for i, w := range h.r.workers {
		var all []*udpSession
		_ = w.loop.Call(func() { all = w.udp.all() })
		for some := range slices.Chunk(all, handedBatch) {
			var out handing
			var err error
			_ = w.loop.Call(func() {
				for _, s := range some {
					if s.closed || s.fd < 0 || err != nil { // its time was up
						continue
					}
					live := s.now()
					kept := live.save()
					err = out.add(Handed{Kind: HandedSession, Frontend: s.u.key.Address, Loop: i, Session: &kept}, s.fd)
				}
			})
			if err != nil {
				out.drop()
				return err
			}
			if err := out.pass(each); err != nil {
				return err
			}
		}
	}
	return nil
}

// all lists the sessions of a worker.
func (u *udpWorker) all() (all []*udpSession) {
	for _, socket := range u.sockets {
		for _, s := range socket.sessions {
			all = append(all, s)
		}
	}
	return all
}

// leaveSessions takes those that were given away off the list: they have not ended.
func (u *udpWorker) leaveSessions() {
	for _, s := range u.all() {
		if s.fd >= 0 {
			s.rec.Leave()
		}
	}
}

// pause leaves what comes in the sockets.
func (u *udpWorker) pause() {
	u.paused = true
	u.flush()
	for _, socket := range u.sockets {
		u.w.loop.Remove(socket.fd)
		for _, s := range socket.sessions {
			u.w.loop.Remove(s.fd)
		}
	}
}

// resume goes on with it. What has come meanwhile is reported by the loop.
func (u *udpWorker) resume() {
	u.paused = false
	for _, socket := range u.sockets {
		if err := u.w.loop.AddReader(socket.fd, socket); err != nil {
			socket.close(flow.ReasonLocalResources)
			continue
		}
		for _, s := range socket.sessions {
			if err := u.w.loop.AddReader(s.fd, s); err != nil {
				s.close(flow.ByBaton, flow.ReasonLocalResources)
			}
		}
	}
}

// inheritSocket makes a socket that has come over one of a listener's, and reports
// false when there is none for it.
func (r *Relay) inheritUDPLocked(l *udpListener, loop int) bool {
	fd, ok := r.inherit.udp[udpPlace{l.key.Address, loop}]
	if !ok {
		return false
	}
	delete(r.inherit.udp, udpPlace{l.key.Address, loop})
	r.budget.used.Add(1)
	l.socks[loop] = &udpSocket{w: r.workers[loop], l: l, fd: fd, key: l.key, sessions: make(map[udpKey]*udpSession)}
	return true
}

// beginUDPLocked takes over the sessions, and then the datagrams that wait. A
// session that cannot go on as it is comes back, perhaps elsewhere, when its client
// sends: it is among those that were written down.
func (r *Relay) beginUDPLocked(sessions []Inherited) error {
	n, err := r.saved.load(r.stateDir)
	if n > 0 {
		r.udpChanges.Add(1)
	}
	r.saved.reopen()
	perLoop := make([][]Inherited, len(r.workers))
	for _, s := range sessions {
		if s.Loop < 0 || s.Loop >= len(r.workers) || s.Session == nil || !s.Session.valid() {
			unix.Close(s.FD)
			continue
		}
		perLoop[s.Loop] = append(perLoop[s.Loop], s)
	}
	for i, w := range r.workers {
		for some := range slices.Chunk(perLoop[i], followChunk) {
			_ = w.loop.Call(func() {
				for _, s := range some {
					r.beginSession(s)
				}
			})
		}
	}
	r.restoreKeptLocked(func(*udpListener) bool { return true })
	if r.judged {
		r.withdrawKeptLocked()
	}
	var failed []*udpListener
	for i, w := range r.workers {
		_ = w.loop.Call(func() {
			for _, l := range r.listeners.udp {
				if s := l.socks[i]; s != nil && !s.closed && w.udp.serve(s) != nil {
					failed = append(failed, l)
				}
			}
		})
	}
	if len(failed) > 0 {
		r.closeUDPLocked(failed, flow.ReasonLocalResources)
		return fmt.Errorf("%d UDP frontends could not be taken over", len(failed))
	}
	return err
}

// beginSession runs on the loop of the session.
func (r *Relay) beginSession(s Inherited) {
	l := r.listeners.udp[lb.FrontendKey{Proto: flow.UDP, Address: s.Frontend}]
	if l == nil || l.socks[s.Loop] == nil || !l.socks[s.Loop].inherit(s.Session, s.FD) {
		unix.Close(s.FD)
	}
}

// inherit goes on with a session of another process, and with its socket. It
// reports false when the session cannot be as it was: its backend is none any more,
// or it has been known by more than the file keeps (a PROXY header, a zone).
func (u *udpSocket) inherit(kept *savedSession, fd int) bool {
	r := u.w.r
	fe, ok := r.store.Snapshot().Frontend(lb.FrontendKey{Proto: flow.UDP, Address: kept.Frontend})
	if !ok || kept.Client.IsValid() {
		return false
	}
	c := udpClient{peer: kept.Peer, client: kept.Peer, local: kept.Frontend, asked: kept.Frontend}
	if !u.mayGoOn(fe, &c, kept.Backend) {
		return false
	}
	if _, ok := r.saved.take(c.key(), u.w.loop.Now(), math.MaxInt64); !ok {
		return false
	}
	var beside *handoff.Kept
	leg := udpLeg{kept.Peer, kept.Frontend}
	k, ok := r.kept[leg]
	if ok && k.Backend == kept.Backend && k.Source == kept.Source && k.Service == fe.Service.Name {
		beside = &k
		e := savedOf(&k)
		e.raise(kept.own())
		kept = &e
	}
	if u.goOn(fe, &c, kept, beside, fd) == nil {
		return false
	}
	if beside != nil {
		delete(r.kept, leg)
	}
	return true
}
