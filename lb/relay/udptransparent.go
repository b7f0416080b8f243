package relay

import (
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/relay/datagram"
	"github.com/baton-lb/baton/lb/store"
)

// udpTuples are the addresses of sockets that speak from their clients' own. Such
// sockets share ports, so that one client port may lead to several backends; the
// kernel would let two of them lead to the same one.
type udpTuples struct {
	mu    sync.Mutex // guards what follows
	taken map[udpTuple]struct{}
}

type udpTuple struct{ source, backend netip.AddrPort }

// take reports false when another socket has the tuple.
func (t *udpTuples) take(u udpTuple) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.taken[u]; ok {
		return false
	}
	if t.taken == nil {
		t.taken = make(map[udpTuple]struct{})
	}
	t.taken[u] = struct{}{}
	return true
}

func (t *udpTuples) give(u udpTuple) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.taken, u)
}

// dialShown makes a socket to a backend at the client's own address: at its port if
// that is free, else at another.
func (r *Relay) dialShown(to netip.AddrPort, shown *showing) (fd int, source netip.AddrPort, err error) {
	for try := range portTries {
		u := udpTuple{shown.from(try), to}
		if try == 0 && !r.udpTuples.take(u) {
			continue
		}
		fd, source, err = udpFrom(to, u.source)
		switch {
		case err == nil && (try == 0 || r.udpTuples.take(udpTuple{source, to})):
			shown.used(source)
			return fd, source, nil
		case err == nil:
			unix.Close(fd)
			err = unix.EADDRINUSE
			continue
		case try == 0:
			r.udpTuples.give(u)
		}
		if dialFailure(err) != flow.DialNoPorts {
			break
		}
	}
	return -1, netip.AddrPort{}, err
}

// udpFrom is udpTo from an address that may be a client's.
func udpFrom(to, local netip.AddrPort) (fd int, source netip.AddrPort, err error) {
	return udpSocketTo(datagram.SocketParams{Local: local, Errors: true, Transparent: true, ReuseAddr: true}, to)
}

// adoptShown notes what the backend of a session sees whose socket is there already.
func (s *udpSession) adoptShown(fe *store.Frontend, source, backend netip.AddrPort) {
	s.shown = s.u.w.r.show(fe, s.client, backend.Addr())
	if s.shown.as != "" && source.Addr() == s.client.Addr() {
		s.shown.client = s.client
		s.shown.used(source)
		s.shown.why = ""
		s.u.w.r.udpTuples.take(udpTuple{source, backend})
	}
	s.shown.tell(s.rec)
}

// giveTuple ends what dialShown began.
func (s *udpSession) giveTuple() {
	if s.shown.client.IsValid() {
		s.u.w.r.udpTuples.give(udpTuple{s.source, s.backend.Address})
	}
}
