package relay

import (
	"container/heap"

	"github.com/baton-lb/baton/lb/relay/datagram"
)

// udpList is a list of sessions, the one that stood still longest first.
type udpList struct {
	first, last *udpSession
	n           int
}

func (l *udpList) push(s *udpSession) {
	s.list, s.prev, s.next = l, l.last, nil
	if l.last != nil {
		l.last.next = s
	} else {
		l.first = s
	}
	l.last = s
	l.n++
}

func (l *udpList) remove(s *udpSession) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		l.last = s.prev
	}
	s.list, s.prev, s.next = nil, nil, nil
	l.n--
}

func (l *udpList) appendTo(all []*udpSession) []*udpSession {
	for s := l.first; s != nil; s = s.next {
		all = append(all, s)
	}
	return all
}

// udpGroup is the sessions of one service on one worker; there is none without
// sessions. Those with one datagram from the client stand apart.
type udpGroup struct {
	service       string
	limits        *limits // of all workers
	oneShot, used udpList
	index         int // in groupsBySize
}

func (g *udpGroup) n() int { return g.oneShot.n + g.used.n }

// touch makes s the youngest of its list, which is another one from the client's
// second datagram on.
func (g *udpGroup) touch(s *udpSession) {
	want := &g.used
	if s.oneShot() {
		want = &g.oneShot
	}
	if s.list == want && want.last == s {
		return
	}
	if s.list != nil {
		s.list.remove(s)
	}
	want.push(s)
}

// oldest is the session to give up first: the oldest of those with one datagram, so
// that a flood of them does not push out others. But they have a quarter of the
// places for themselves: with fewer, each would go before its answer comes.
func (g *udpGroup) oldest() *udpSession {
	if s := g.oneShot.first; s != nil && 4*g.oneShot.n >= g.n() {
		return s
	}
	return g.used.first
}

// groupsBySize is a heap, the largest group first; it implements heap.Interface.
type groupsBySize []*udpGroup

func (h groupsBySize) Len() int           { return len(h) }
func (h groupsBySize) Less(i, j int) bool { return h[i].n() > h[j].n() }

func (h groupsBySize) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *groupsBySize) Push(x any) {
	g := x.(*udpGroup)
	g.index = len(*h)
	*h = append(*h, g)
}

func (h *groupsBySize) Pop() any {
	old := *h
	g := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return g
}

// first is the largest group, nil when there is none.
func (h groupsBySize) first() *udpGroup {
	if len(h) == 0 {
		return nil
	}
	return h[0]
}

// transfer is what datagrams are moved with.
type transfer struct {
	receiver *datagram.Receiver
	sender   *datagram.Sender
}

func newTransfer() *transfer {
	return &transfer{receiver: datagram.NewReceiver(), sender: new(datagram.Sender)}
}

// udpWorker is what the UDP sessions of one worker share.
type udpWorker struct {
	w         *worker
	*transfer             // nil until there is a frontend
	spare     *transfer   // nil until it is needed, see udpSession.drain
	current   *udpSession // whose datagrams the sender has
	sockets   map[*udpListener]*udpSocket
	groups    map[string]*udpGroup
	bySize    groupsBySize
	refuser   datagram.Refuser
	paused    bool // what comes waits in the sockets: see Handover.PauseUDP
}

func newUDPWorker(w *worker) udpWorker {
	return udpWorker{w: w, sockets: make(map[*udpListener]*udpSocket), groups: make(map[string]*udpGroup)}
}

// prepare makes what datagrams are moved with, once.
func (u *udpWorker) prepare() {
	if u.transfer == nil {
		u.transfer = newTransfer()
	}
}

// collectFor makes s the session that the sender works for.
func (u *udpWorker) collectFor(s *udpSession) {
	if u.current != s {
		u.flush()
		u.current = s
	}
}

// flush sends what was collected for the current session.
func (u *udpWorker) flush() {
	if s := u.current; s != nil {
		u.current = nil
		s.flushToBackend()
	}
}

// admit lists a session.
func (u *udpWorker) admit(s *udpSession, lim *limits) {
	g := u.groups[s.fe.Service.Name]
	if g == nil {
		g = &udpGroup{service: s.fe.Service.Name, limits: lim}
		u.groups[g.service] = g
		heap.Push(&u.bySize, g)
	}
	s.group = g
	g.touch(s)
	heap.Fix(&u.bySize, g.index)
	s.u.add(s)
	u.w.loop.Load().Add(1)
}

// forget unlists a session.
func (u *udpWorker) forget(s *udpSession) {
	g := s.group
	s.list.remove(s)
	if g.n() > 0 {
		heap.Fix(&u.bySize, g.index)
	} else {
		heap.Remove(&u.bySize, g.index)
		delete(u.groups, g.service)
	}
	delete(s.u.sessions, s.key())
	u.w.r.strays.remove(s)
	u.w.r.udpChanges.Add(1)
}
