package relay

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/lb/sched"
)

// prepare asks the Offloader before a backend is dialled: a flow that is to leave
// userspace must use a local address and port that the Offloader knows and nobody
// else will take.
func (f *tcpFlow) prepare(b *sched.Backend) {
	r := handoff.Request{
		Record: f.rec, Client: f.peer, Frontend: f.local, Backend: b.Address, ClientFD: f.front.fd,
		Policy: f.fe.Service.Offload, Timeouts: f.fe.Service.Timeouts,
	}
	f.shown = f.w.r.show(f.fe, f.client, b.Address.Addr())
	r.Transparent = f.shown.client
	if f.lease = nil; f.shown.stays && r.Policy.Mode != lb.OffloadNever {
		f.rec.NotOffloaded(flow.NotOffloadedUnseen)
		return
	}
	var why flow.NotOffloaded
	f.lease, why = f.w.r.offloader.Prepare(r)
	f.rec.NotOffloaded(why)
}

// dialParams says how the next attempt to reach b is made. The peer is watched
// once the flow has lived for a while: see settle.
func (f *tcpFlow) dialParams(b *sched.Backend) (p DialParams) {
	if f.lease != nil {
		p.Local = f.lease.Local()
	}
	if !p.Local.Addr().IsValid() && p.Local.Port() == 0 {
		if f.shown.client.IsValid() {
			p.Local = f.shown.from(f.dialTry)
		} else {
			p.Local = f.w.r.sources.local(b.Address.Addr(), f.dialTry)
		}
	}
	p.Transparent = f.shown.used(p.Local)
	return p
}

// releaseLease gives the lease back, if there is one.
func (f *tcpFlow) releaseLease(why flow.Reason) {
	if f.lease != nil {
		f.lease.Release(why)
		f.lease = nil
	}
}

// holdLimit is how long no byte moves at the wish of an Offloader that does not
// come.
const holdLimit = time.Second

// hold keeps every byte where it is until the Offloader has tried to take the flow
// over. A peer that goes, or an Offloader that does not come, ends it.
func (f *tcpFlow) hold() {
	f.held = true
	f.rec.HandingOff()
	f.w.loop.Arm(&f.timer, holdLimit)
}

func (f *tcpFlow) unhold() {
	f.held = false
	f.rec.StaysHere()
	f.armIdle()
}

// whole reports whether neither side has announced its end.
func (f *tcpFlow) whole() bool {
	return !f.toBackend.Ended && !f.toClient.Ended && !f.front.broken && !f.back.broken
}

// countMoved counts bytes that an Offloader has delivered itself.
func (f *tcpFlow) countMoved(n [2]uint64) {
	if n[toBackend] > 0 {
		f.toBackend.Delivered(n[toBackend])
		f.moved(&f.toBackend, toBackend, &f.front)
	}
	if n[toClient] > 0 {
		f.toClient.Delivered(n[toClient])
		f.moved(&f.toClient, toClient, &f.back)
	}
}

// watchPeers has the kernel watch over both peers again: an Offloader switches
// that off before it begins. A peer may have begun to pause meanwhile, or still do.
func (f *tcpFlow) watchPeers() {
	f.watchPeer(&f.front)
	if f.settled {
		f.watchPeer(&f.back)
	}
}

func (f *tcpFlow) watchPeer(l *leg) {
	_ = unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	info, err := unix.GetsockoptTCPInfo(l.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	f.setPauses(l, err == nil && unacknowledged(l.fd) > 0 && info.Unacked == 0)
}
