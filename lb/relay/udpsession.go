package relay

import (
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

	// Towards the backend.
	fd       int
	backend  *sched.Backend
	source   netip.AddrPort     // the socket's own address
	shown    showing            // how the backend sees the client
	tried    []*sched.Backend   // have refused since the last answer
	failed   flow.DialFailure   // of the last attempt to connect a socket
	blamed   bool               // an attempt failed by a backend's fault
	refused  bool               // every backend has, since the last answer
	doubt    bool               // the network could not reach the backend once, since its last answer
	header   []byte             // PROXY, before each datagram to the backend
	together [directions]uint16 // the largest datagrams that the way out takes together

	carrying carrying // beside the socket

	closed    bool
	released  bool // closed, but carried on beside this process
	queued    bool
	seenFirst [directions]bool

	timer  poll.Timer
	active int64 // when the last datagram came, either way, as poll.Loop.Nano
	group  *udpGroup
	list   *udpList // of the group
	prev   *udpSession
	next   *udpSession

	bytes    [directions]atomic.Uint64
	packets  [directions]atomic.Uint64
	lastSeen atomic.Int64 // Unix nanoseconds
}

// directions is how many there are: toBackend and toClient.
const directions = 2

var (
	_ poll.Handler = (*udpSession)(nil)
	_ poll.Runner  = (*udpSession)(nil)
	_ flow.Path    = (*udpSession)(nil)
)

// count notes what one direction has carried.
func (s *udpSession) count(dir int, sent datagram.Sent, header int) {
	if sent.Datagrams == 0 {
		return
	}
	loop := s.u.w.loop
	s.active = loop.Nano()
	s.lastSeen.Store(loop.Now().UnixNano())
	s.packets[dir].Add(uint64(sent.Datagrams))
	s.bytes[dir].Add(uint64(sent.Bytes - header*sent.Datagrams))
	s.noteFirst(dir, uint64(sent.Datagrams))
	s.group.touch(s)
	if s.active >= s.carrying.tryAt {
		s.carryIfBig()
	}
}

// noteFirst tells of the first of n datagrams, if nobody has told of one before.
func (s *udpSession) noteFirst(dir int, n uint64) {
	if n > 0 && !s.seenFirst[dir] {
		s.seenFirst[dir] = true
		s.rec.FirstByte([...]flow.By{toBackend: flow.ByClient, toClient: flow.ByBackend}[dir])
	}
}

// oneShot reports whether the client has sent one datagram only. Such a session
// lives half as long, and goes first when room is needed.
func (s *udpSession) oneShot() bool { return s.questions() <= 1 }

func (s *udpSession) life() time.Duration {
	life := s.fe.Service.Timeouts.UDPIdle
	if s.oneShot() {
		life /= 2
	}
	return life
}

// left is how long the session may stand still yet.
func (s *udpSession) left() time.Duration {
	return s.life() - time.Duration(s.u.w.loop.Nano()-s.active)
}

func (s *udpSession) onTimer() {
	s.look()
	if left := s.left(); left > 0 {
		s.u.w.loop.Arm(&s.timer, left)
		return
	}
	s.close(flow.ByBaton, flow.ReasonIdle)
}

// close ends the session. What was collected for its backend is sent. The way beside
// its socket is closed before that, unless only the process ends.
func (s *udpSession) close(by flow.By, why flow.Reason) {
	if s.closed {
		return
	}
	w := s.u.w
	if w.udp.current == s {
		w.udp.flush()
	}
	s.closed = true
	way := s.carrying.way
	s.released = way != nil && why == flow.ReasonShutdown
	if way != nil && !s.released {
		way.close()
	}
	w.udp.forget(s)
	w.loop.Disarm(&s.timer)
	s.closeSocket()
	w.loop.Load().Add(-1)
	w.udp.giveBack(s.group.limits)
	if !s.released {
		s.rec.Finish(by, why)
	}
	s.u.sessionEnded()
	w.tryResume()
}

func (s *udpSession) closeSocket() {
	if s.fd >= 0 {
		s.u.w.loop.Forget(s.fd)
		unix.Close(s.fd)
		s.fd = -1
		s.giveTuple()
	}
}

// End implements flow.Path. UDP has no reset: the session just ends.
func (s *udpSession) End(by flow.By, why flow.Reason) {
	s.u.w.post(func() {
		if s.released {
			s.endReleased(by, why)
			return
		}
		s.close(by, why)
	})
}

// Counters implements flow.Path: what the socket has carried.
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
