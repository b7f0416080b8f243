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

// udpSocketSize is the receive and send queue that is asked for each frontend:
// a burst waits there while the loop is busy.
const udpSocketSize = 4 << 20

// udpRounds is how many batches one frontend may have in one round of its loop.
const udpRounds = 4

// udpSocket is a frontend's socket on one worker's loop. With several workers
// they share the port (SO_REUSEPORT): the kernel gives all datagrams of one client
// to the same socket, so that a session has one owner.
type udpSocket struct {
	w      *worker
	fd     int
	key    lb.FrontendKey
	queued bool
	closed bool

	sessions int  // that answer through it
	retiring bool // no new sessions; it closes when the last one has ended
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
	if ev&(poll.In|poll.Err) != 0 {
		u.receive()
	}
}

// Run goes on after other sockets have had their turn.
func (u *udpSocket) Run() {
	u.queued = false
	if !u.closed {
		u.receive()
	}
}

func (u *udpSocket) receive() {
	for range udpRounds {
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
	if !u.queued {
		u.queued = true
		u.w.loop.Soon(u)
	}
}

// deliver hands each datagram to the session of its client.
func (u *udpSocket) deliver(msgs []datagram.Message) {
	fe, known := u.w.r.store.Snapshot().Frontend(u.key)
	for i := range msgs {
		m := &msgs[i]
		local := u.key.Address
		if u.wildcard() {
			local = netip.AddrPortFrom(m.Local, local.Port())
			fe, known = u.w.r.store.Snapshot().Frontend(lb.FrontendKey{Proto: flow.UDP, Address: local})
		}
		if !known {
			u.w.drop(flow.DropNoFrontend, m.Count())
			continue
		}
		u.deliverOne(fe, m, local)
	}
	u.w.udp.flush()
}

func (u *udpSocket) deliverOne(fe *store.Frontend, m *datagram.Message, local netip.AddrPort) {
	client := m.From.AddrPort()
	if contains(fe.Service.AcceptProxy, client.Addr()) {
		eachDatagram(m, func(b []byte) { u.deliverProxied(fe, m, local, b) })
		return
	}
	s := u.w.udp.sessions[udpKey{wire: flow.NewKey(flow.UDP, client, local)}]
	if s == nil {
		if s = u.open(fe, udpClient{peer: client, client: client, local: local, asked: local}, m); s == nil {
			return
		}
	}
	eachDatagram(m, s.toBackend)
}

// deliverProxied is deliverOne for a datagram with a PROXY header before it. A
// bad one costs that datagram only.
func (u *udpSocket) deliverProxied(fe *store.Frontend, m *datagram.Message, local netip.AddrPort, b []byte) {
	h, n, err := proxyproto.Parse(b)
	if err != nil || h.Version != proxyproto.V2 {
		u.w.drop(flow.DropProxyHeader, 1)
		return
	}
	c := udpClient{peer: m.From.AddrPort(), local: local, asked: local, proxied: true}
	c.client = c.peer
	if !h.Local {
		c.client, c.asked = h.Source, h.Destination
	}
	s := u.w.udp.sessions[c.key()]
	if s == nil {
		if s = u.open(fe, c, m); s == nil {
			return
		}
	}
	s.toBackend(b[n:])
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
// whose port is closed now has no use for its session.
func (u *udpSocket) readErrors() {
	for range datagram.BatchSize {
		f, ok := datagram.ReadError(u.fd)
		if !ok {
			return
		}
		if !errors.Is(f.Err, unix.ECONNREFUSED) {
			continue
		}
		if s := u.w.udp.sessions[udpKey{wire: flow.NewKey(flow.UDP, f.To, u.key.Address)}]; s != nil {
			s.close(flow.ByClient, flow.ReasonNetworkError)
		}
	}
}

// drop counts datagrams that go nowhere.
func (w *worker) drop(why flow.Drop, datagrams int) {
	for range datagrams {
		w.r.registry.Drop(why)
	}
}
