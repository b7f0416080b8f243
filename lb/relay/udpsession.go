package relay

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/relay/datagram"
	"github.com/baton-lb/baton/lb/relay/poll"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/store"
)

// udpClient is who a session is for.
type udpClient struct {
	peer    netip.AddrPort // who sends: the client, or a proxy before us
	client  netip.AddrPort // as believed
	local   netip.AddrPort // what the peer sends to
	asked   netip.AddrPort // what the client sent to, as believed
	proxied bool
}

// udpKey finds a session. It has no pointers and no holes.
type udpKey struct {
	wire   flow.Key
	client [16]byte // behind a proxy, else zero
	port   uint16
}

func (c *udpClient) key() udpKey {
	k := udpKey{wire: flow.NewKey(flow.UDP, c.peer, c.local)}
	if c.proxied {
		k.client, k.port = c.client.Addr().As16(), c.client.Port()
	}
	return k
}

// udpSession is one client of one frontend, with a connected socket to its
// backend. It belongs to one worker's loop; others use only the counters.
type udpSession struct {
	udpClient
	u    *udpSocket
	fe   *store.Frontend
	rec  *flow.Record
	name datagram.Name // of peer
	fd   int

	backend *sched.Backend
	tried   []*sched.Backend // have refused since the last answer
	header  []byte           // PROXY, before each datagram to the backend
	alone   bool             // the way to the backend does not take datagrams together
	back    bool             // the same for the way to the client
	closed  bool
	queued  bool

	timer  poll.Timer
	active int64 // when the last datagram came, either way, Unix nanoseconds
	group  *udpGroup
	list   *udpList // of the group
	prev   *udpSession
	next   *udpSession

	bytes    [2]atomic.Uint64
	packets  [2]atomic.Uint64
	lastSeen atomic.Int64
}

var (
	_ poll.Handler = (*udpSession)(nil)
	_ poll.Runner  = (*udpSession)(nil)
	_ flow.Path    = (*udpSession)(nil)
)

// toBackend collects one datagram for the backend.
func (s *udpSession) toBackend(b []byte) {
	if s.closed {
		return
	}
	if len(s.header)+len(b) > maxUDP(s.backend.Address.Addr()) {
		s.u.w.drop(flow.DropTooBig, 1)
		return
	}
	w := s.u.w
	w.udp.collectFor(s)
	d := datagram.Datagram{Header: s.header, Data: b, Alone: s.alone}
	if !w.udp.sender.Add(d) {
		w.udp.flush()
		w.udp.collectFor(s)
		w.udp.sender.Add(d)
	}
}

// maxUDP is the largest payload: the length field counts the UDP header, and over
// IPv4 the IP header too.
func maxUDP(a netip.Addr) int {
	if a.Is4() {
		return 65507
	}
	return 65527
}

// flushToBackend sends what was collected. An ICMP error about an earlier
// datagram, which the kernel reports instead of sending, does not cost this one.
func (s *udpSession) flushToBackend() {
	w := s.u.w
	for w.udp.sender.Len() > 0 {
		sent, err := w.udp.sender.Flush(s.fd)
		s.count(toBackend, sent, len(s.header))
		if err == nil {
			return
		}
		if !s.sendFailed(err) {
			_, n, _ := w.udp.sender.Failed()
			w.drop(udpDrop(err), n)
			w.udp.sender.Skip()
		}
		if s.closed {
			return
		}
	}
}

// sendFailed does what can be done about an error of sending to the backend, and
// reports whether the message should be tried again.
func (s *udpSession) sendFailed(err error) bool {
	_, n, _ := s.u.w.udp.sender.Failed()
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return s.backendFailed(err)
	case n > 1 && splittable(err):
		s.alone = true
		s.u.w.udp.sender.Split()
		return true
	}
	return false
}

// splittable reports whether an error may come from UDP_SEGMENT: segments larger
// than the path takes whole, or a device without checksum offload (udp(7)).
func splittable(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.EIO)
}

func udpDrop(err error) flow.Drop {
	switch {
	case errors.Is(err, unix.EMSGSIZE), errors.Is(err, unix.EINVAL):
		return flow.DropTooBig
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		return flow.DropQueueFull
	}
	return flow.DropUnreachable
}

// backendFailed notes that the network refuses the backend, and moves the session
// to another. It reports false when there is none that has not refused too.
func (s *udpSession) backendFailed(err error) bool {
	s.rec.DialFailed(dialFailure(err))
	s.tried = append(s.tried, s.backend)
	if s.repick(flow.ByRetry) {
		return true
	}
	s.tried = nil // all have refused: the next datagram begins anew
	return false
}

// Ready takes the backend's answers.
func (s *udpSession) Ready(ev poll.Events) {
	if ev&(poll.In|poll.Err) != 0 {
		s.receive()
	}
}

// Run goes on after other sockets have had their turn.
func (s *udpSession) Run() {
	s.queued = false
	if !s.closed {
		s.receive()
	}
}

func (s *udpSession) receive() {
	w := s.u.w
	for range udpRounds {
		msgs, err := w.udp.receiver.Receive(s.fd)
		if errors.Is(err, unix.EAGAIN) || s.closed {
			return
		}
		if err != nil {
			s.backendFailed(err)
			continue
		}
		s.tried = nil
		s.toClient(msgs)
		if len(msgs) < datagram.BatchSize {
			return
		}
	}
	if !s.queued {
		s.queued = true
		w.loop.Soon(s)
	}
}

// toClient sends the backend's answers from the address that was asked.
func (s *udpSession) toClient(msgs []datagram.Message) {
	w := s.u.w
	w.udp.flush() // the sender is free now
	for i := range msgs {
		eachDatagram(&msgs[i], func(b []byte) {
			d := datagram.Datagram{Data: b, To: &s.name, Alone: s.back}
			if s.u.wildcard() {
				d.Source = s.local.Addr()
			}
			if !w.udp.sender.Add(d) {
				s.flushToClient()
				w.udp.sender.Add(d)
			}
		})
	}
	s.flushToClient()
}

func (s *udpSession) flushToClient() {
	w := s.u.w
	stale := 0 // errors about earlier datagrams, of any client
	for w.udp.sender.Len() > 0 {
		sent, err := w.udp.sender.Flush(s.u.fd)
		s.count(toClient, sent, 0)
		if err == nil {
			return
		}
		_, n, _ := w.udp.sender.Failed()
		switch {
		case n > 1 && splittable(err):
			s.back = true
			w.udp.sender.Split()
		case stale < datagram.BatchSize && udpDrop(err) == flow.DropUnreachable:
			stale++ // reported once, and not sent: try again
		default:
			w.drop(udpDrop(err), n)
			w.udp.sender.Skip()
		}
	}
}

// count notes what one direction has carried.
func (s *udpSession) count(dir int, sent datagram.Sent, header int) {
	if sent.Datagrams == 0 {
		return
	}
	now := s.u.w.loop.Nano()
	s.active = now
	s.lastSeen.Store(now)
	first := s.packets[dir].Load() == 0
	s.packets[dir].Add(uint64(sent.Datagrams))
	s.bytes[dir].Add(uint64(sent.Bytes - header*sent.Datagrams))
	if first {
		s.rec.FirstByte([...]flow.By{toBackend: flow.ByClient, toClient: flow.ByBackend}[dir])
	}
	s.group.touch(s)
}

// oneShot reports whether the client has sent one datagram only. Such a session
// lives half as long, and goes first when room is needed.
func (s *udpSession) oneShot() bool { return s.packets[toBackend].Load() <= 1 }

func (s *udpSession) life() time.Duration {
	life := s.fe.Service.Timeouts.UDPIdle
	if s.oneShot() {
		life /= 2
	}
	return life
}

func (s *udpSession) onTimer() {
	left := s.life() - time.Duration(s.u.w.loop.Nano()-s.active)
	if left > 0 {
		s.u.w.loop.Arm(&s.timer, left)
		return
	}
	s.close(flow.ByBaton, flow.ReasonIdle)
}

// close ends the session.
func (s *udpSession) close(by flow.By, why flow.Reason) {
	if s.closed {
		return
	}
	w := s.u.w
	w.udp.forget(s)
	s.closed = true
	w.loop.Disarm(&s.timer)
	s.closeSocket()
	w.loop.Load().Add(-1)
	w.r.budget.put(1)
	s.rec.Finish(by, why)
	w.tryResume()
	s.u.sessionEnded()
}

// End implements flow.Path. UDP has no reset: the session just ends.
func (s *udpSession) End(by flow.By, why flow.Reason) {
	s.u.w.loop.Post(func() { s.close(by, why) })
}

// Counters implements flow.Path.
func (s *udpSession) Counters() flow.Counters {
	c := flow.Counters{
		BytesToBackend: s.bytes[toBackend].Load(), BytesToClient: s.bytes[toClient].Load(),
		PacketsToBackend: s.packets[toBackend].Load(), PacketsToClient: s.packets[toClient].Load(),
	}
	if seen := s.lastSeen.Load(); seen != 0 {
		c.LastSeen = time.Unix(0, seen)
	}
	return c
}
