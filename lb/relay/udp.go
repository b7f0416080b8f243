package relay

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/datagram"
	"github.com/baton-lb/baton/lb/relay/poll"
	"github.com/baton-lb/baton/lb/relay/proxyproto"
	"github.com/baton-lb/baton/lb/store"
)

// udpRounds is how many batches one socket may have in one round of its loop.
const udpRounds = 4

// udpSocket is a frontend's socket on one worker's loop. With several workers
// they share the port (SO_REUSEPORT): the kernel gives all datagrams of one client
// to the same socket, so that a session has one owner.
type udpSocket struct {
	w        *worker
	l        *udpListener
	key      lb.FrontendKey
	fd       int
	queued   bool
	closed   bool
	sessions map[udpKey]*udpSession // that answer through it
}

var (
	_ poll.Handler = (*udpSocket)(nil)
	_ poll.Runner  = (*udpSocket)(nil)
)

// wildcard reports whether the socket is bound to no address, so that each
// datagram says which one was asked.
func (u *udpSocket) wildcard() bool { return u.key.Address.Addr().IsUnspecified() }

// Ready takes what has come.
func (u *udpSocket) Ready(ev poll.Events) {
	if ev&poll.Err != 0 {
		u.readErrors()
	}
	u.receive()
}

// Run goes on after other sockets have had their turn.
func (u *udpSocket) Run() {
	u.queued = false
	u.receive()
}

func (u *udpSocket) receive() {
	for range udpRounds {
		if u.closed || u.w.udp.paused { // closed with the last session, once it is retired
			return
		}
		msgs, err := u.w.udp.receiver.Receive(u.fd)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil { // an ICMP error that waits on the socket
			u.readErrors()
			continue
		}
		u.deliver(msgs)
		if len(msgs) < datagram.BatchSize {
			return
		}
	}
	u.runSoon()
}

func (u *udpSocket) runSoon() {
	if !u.queued {
		u.queued = true
		u.w.loop.Soon(u)
	}
}

// deliver hands each datagram to the session of its client.
func (u *udpSocket) deliver(msgs []datagram.Message) {
	snapshot := u.w.r.store.Snapshot()
	local := u.key.Address
	fe, known := snapshot.Frontend(u.key)
	var last *udpSession
	for i := range msgs {
		m := &msgs[i]
		if u.wildcard() {
			local = netip.AddrPortFrom(m.Local, u.key.Address.Port())
			fe, known = u.w.r.find(snapshot, lb.FrontendKey{Proto: flow.UDP, Address: local})
		}
		if !known {
			u.w.drop(flow.DropNoFrontend, m.Count())
			continue
		}
		last = u.deliverOne(fe, m, local, last)
	}
	u.w.udp.flush()
}

// deliverOne returns the session, for the next message: it often has the same
// sender.
func (u *udpSocket) deliverOne(fe *store.Frontend, m *datagram.Message, local netip.AddrPort, last *udpSession) *udpSession {
	if last != nil && !last.closed && last.fe == fe && last.local == local && m.From.Equal(&last.name) {
		eachDatagram(m, last.toBackend)
		return last
	}
	client := m.From.AddrPort()
	if contains(fe.Service.AcceptProxy, client.Addr()) {
		eachDatagram(m, func(b []byte) { u.deliverProxied(fe, m, local, b) })
		return nil
	}
	c := udpClient{peer: client, client: client, local: local, asked: local}
	if s := u.stray(&c); s != nil {
		s.pass(fe, m)
		return nil
	}
	s := u.session(fe, c, m.From, m.Count())
	if s != nil {
		eachDatagram(m, s.toBackend)
	}
	return s
}

// deliverProxied is deliverOne for a datagram with a PROXY header before it. A
// bad one costs that datagram only.
func (u *udpSocket) deliverProxied(fe *store.Frontend, m *datagram.Message, local netip.AddrPort, b []byte) {
	h, n, err := proxyproto.Parse(b)
	if err != nil || h.Version != proxyproto.V2 || !h.Local && h.Transport != proxyproto.Datagram {
		u.w.drop(flow.DropProxyHeader, 1)
		return
	}
	c := udpClient{peer: m.From.AddrPort(), local: local, asked: local, proxied: true}
	c.client = c.peer
	if !h.Local {
		c.client, c.asked = h.Source, h.Destination
	}
	if s := u.session(fe, c, m.From, 1); s != nil {
		s.toBackend(b[n:])
	}
}

// session finds the session of a client, or begins one. It returns nil, with n
// datagrams counted as dropped, when the client gets none.
func (u *udpSocket) session(fe *store.Frontend, c udpClient, from *datagram.Name, n int) *udpSession {
	s := u.sessions[c.key()]
	if s != nil && s.fe != fe {
		s.follow(fe)
	}
	if s == nil || s.closed {
		return u.open(fe, c, from, n)
	}
	return s
}

// eachDatagram takes a message apart.
func eachDatagram(m *datagram.Message, f func([]byte)) {
	if m.Segment == 0 {
		f(m.Data)
		return
	}
	for b := m.Data; len(b) > 0; {
		n := min(m.Segment, len(b))
		f(b[:n])
		b = b[n:]
	}
}

// readErrors takes what the network says about answers that were sent: a client
// whose port is closed now has no use for its session. What a proxy's closed port
// means for the clients behind it is not known.
func (u *udpSocket) readErrors() {
	for range udpRounds * datagram.BatchSize {
		if u.closed {
			return
		}
		f, ok := datagram.ReadError(u.fd)
		if !ok {
			return
		}
		if !errors.Is(f.Err, unix.ECONNREFUSED) {
			continue
		}
		local := u.key.Address
		if u.wildcard() {
			local = netip.AddrPortFrom(f.Local, local.Port())
		}
		c := udpClient{peer: f.To, local: local}
		if s := u.sessions[c.key()]; s != nil {
			s.close(flow.ByClient, flow.ReasonNetworkError)
		} else if s := u.stray(&c); s != nil {
			s.End(flow.ByClient, flow.ReasonNetworkError)
		}
	}
	u.runSoon()
}

// drop counts datagrams that go nowhere.
func (w *worker) drop(why flow.Drop, datagrams int) {
	for range datagrams {
		w.r.registry.Drop(why)
	}
}
