package relay

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/relay/datagram"
	"github.com/baton-lb/baton/lb/store"
)

// strays are sessions of an earlier process that may live on another loop than the
// one whose socket the kernel gives their client's datagrams to. Few come that way:
// a carrier takes them before, but for fragments.
type strays struct {
	n atomic.Int64

	mu sync.Mutex // guards what follows
	m  map[udpKey]*udpSession
}

func (t *strays) add(s *udpSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m == nil {
		t.m = make(map[udpKey]*udpSession)
	}
	t.m[s.key()] = s
	t.n.Store(int64(len(t.m)))
}

func (t *strays) remove(s *udpSession) {
	if t.n.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := s.key(); t.m[k] == s {
		delete(t.m, k)
		t.n.Store(int64(len(t.m)))
	}
}

func (t *strays) find(k udpKey) *udpSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.m[k]
}

// stray finds the session of a client on another loop.
func (u *udpSocket) stray(c *udpClient) *udpSession {
	t := &u.w.r.strays
	if t.n.Load() == 0 {
		return nil
	}
	if s := t.find(c.key()); s != nil && s.u != u {
		return s
	}
	return nil
}

// pass takes a message to the session on its own loop.
func (s *udpSession) pass(fe *store.Frontend, m *datagram.Message) {
	var all [][]byte
	eachDatagram(m, func(b []byte) { all = append(all, bytes.Clone(b)) })
	s.u.w.loop.Post(func() {
		if !s.closed && s.fe != fe {
			s.follow(fe)
		}
		if s.closed {
			s.u.w.drop(flow.DropNoBackend, len(all))
			return
		}
		for _, b := range all {
			s.toBackend(b)
		}
		s.u.w.udp.flush()
	})
}
