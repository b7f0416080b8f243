package relay

import (
	"sync/atomic"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/relay/datagram"
	"github.com/baton-lb/baton/lb/store"
)

// udpList is a list of sessions, the one that stood still longest first.
type udpList struct{ first, last *udpSession }

func (l *udpList) push(s *udpSession) {
	s.list, s.prev, s.next = l, l.last, nil
	if l.last != nil {
		l.last.next = s
	} else {
		l.first = s
	}
	l.last = s
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
}

// udpGroup is the sessions of one service on one worker. Those with one datagram
// from the client stand apart: they go first when room is needed.
type udpGroup struct {
	n             int
	oneShot, used udpList
	total         *atomic.Int64 // of all workers
}

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

// oldest is the session to give up first, nil when there is none.
func (g *udpGroup) oldest() *udpSession {
	if g.oneShot.first != nil {
		return g.oneShot.first
	}
	return g.used.first
}

// udpWorker is what the UDP sessions of one worker share.
type udpWorker struct {
	w        *worker
	receiver *datagram.Receiver
	sender   *datagram.Sender
	current  *udpSession // whose datagrams the sender has
	sockets  map[*udpSocket]struct{}
	sessions map[udpKey]*udpSession
	groups   map[string]*udpGroup
}

func newUDPWorker(w *worker) udpWorker {
	return udpWorker{
		w: w, sockets: make(map[*udpSocket]struct{}),
		sessions: make(map[udpKey]*udpSession), groups: make(map[string]*udpGroup),
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
		if !s.closed {
			s.flushToBackend()
		}
		u.sender.Reset()
	}
}

func (u *udpWorker) group(service string) *udpGroup {
	g := u.groups[service]
	if g == nil {
		g = &udpGroup{total: &u.w.r.udpLimits.of(service).sessions}
		u.groups[service] = g
	}
	return g
}

// admit lists a session.
func (u *udpWorker) admit(s *udpSession) {
	u.sessions[s.key()] = s
	s.group = u.group(s.fe.Service.Name)
	s.group.n++
	s.group.total.Add(1)
	s.group.touch(s)
	s.u.sessions++
	u.w.r.udpChanges.Add(1)
}

// forget unlists a session.
func (u *udpWorker) forget(s *udpSession) {
	if u.current == s {
		u.current = nil
		u.sender.Reset()
	}
	delete(u.sessions, s.key())
	s.list.remove(s)
	s.u.sessions--
	u.w.r.udpChanges.Add(1)
	s.group.n--
	s.group.total.Add(-1)
	if s.group.n == 0 {
		delete(u.groups, s.fe.Service.Name)
	}
}

// room makes room for one more session of a service, at the cost of its own
// oldest one, so that a flood on one service is not felt by the others.
func (u *udpWorker) room(fe *store.Frontend) (flow.Drop, bool) {
	r := u.w.r
	g := u.group(fe.Service.Name)
	limit := int64(fe.Service.Limits.UDPSessions)
	if limit == 0 {
		limit = r.budget.limit / 2
	}
	if g.total.Load() >= limit && !u.evict(g) {
		return flow.DropLimit, false
	}
	if r.budget.take(1) {
		return "", true
	}
	if u.evict(u.largest()) && r.budget.take(1) {
		return "", true
	}
	return flow.DropNoDescriptors, false
}

func (u *udpWorker) evict(g *udpGroup) bool {
	if g == nil {
		return false
	}
	s := g.oldest()
	if s == nil {
		return false
	}
	s.close(flow.ByBaton, flow.ReasonEvicted)
	return true
}

// largest is the group with the most sessions.
func (u *udpWorker) largest() (most *udpGroup) {
	for _, g := range u.groups {
		if most == nil || g.n > most.n {
			most = g
		}
	}
	return most
}
