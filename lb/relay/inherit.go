package relay

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
)

// inheritance is what has come over from the relay of another process, and what
// waits until that one has let go. Relay.mu guards it.
type inheritance struct {
	holding   bool // nothing is taken from any socket, and no route goes
	tcp       map[netip.AddrPort]Inherited
	shared    map[bool]Inherited // by whether it is for IPv4
	udp       map[udpPlace]int
	unwatched []*listener
}

// udpPlace is whose a UDP frontend's socket is.
type udpPlace struct {
	frontend netip.AddrPort
	loop     int
}

// init sorts what has come over.
func (in *inheritance) init(from *Inheritance) {
	if from == nil {
		return
	}
	in.holding = true
	in.tcp = make(map[netip.AddrPort]Inherited)
	in.shared = make(map[bool]Inherited)
	in.udp = make(map[udpPlace]int)
	for _, s := range from.Sockets {
		switch s.Kind {
		case HandedListener:
			in.tcp[s.Frontend] = s
		case HandedShared:
			in.shared[s.IPv4] = s
		case HandedUDP:
			in.udp[udpPlace{s.Frontend, s.Loop}] = s.FD
		default:
			unix.Close(s.FD)
		}
	}
}

// closeRest closes what nobody has use for.
func (in *inheritance) closeRest() {
	for _, s := range in.tcp {
		unix.Close(s.FD)
	}
	for _, s := range in.shared {
		unix.Close(s.FD)
	}
	for _, fd := range in.udp {
		unix.Close(fd)
	}
	in.tcp, in.shared, in.udp = nil, nil, nil
}

// listen gives the socket of a frontend that has come over, or makes one.
func (in *inheritance) listen(key lb.FrontendKey, p capture.ListenParams) (sock *capture.Listener, silent bool, err error) {
	if s, ok := in.tcp[key.Address]; ok {
		delete(in.tcp, key.Address)
		return fromFD(s)
	}
	sock, err = capture.Listen(key.Address, p)
	return sock, false, err
}

// listenShared gives the shared socket of a family that has come over, or makes
// one.
func (in *inheritance) listenShared(at netip.Addr) (*capture.Listener, error) {
	if s, ok := in.shared[at.Is4()]; ok {
		delete(in.shared, at.Is4())
		sock, _, err := fromFD(s)
		return sock, err
	}
	return capture.Listen(netip.AddrPortFrom(at, 0), capture.ListenParams{AnyIP: true})
}

// has reports whether the socket of a frontend has come over.
func (in *inheritance) has(k lb.FrontendKey) bool {
	_, ok := in.tcp[k.Address]
	return ok
}

func fromFD(s Inherited) (*capture.Listener, bool, error) {
	sock, err := capture.NewListenerFromFD(s.FD)
	if err != nil {
		return nil, false, errors.Join(err, unix.Close(s.FD))
	}
	return sock, s.Silent, nil
}

// silenceLocked is listener.setSilent, which waits for Begin: until then another
// process takes connections from the same socket.
func (r *Relay) silenceLocked(l *listener, silent bool) error {
	if r.inherit.holding {
		return nil
	}
	return l.setSilent(silent)
}

// Begin takes what comes from now on: the relay that the sockets have come from has
// let go of them. The sessions are that one's. It is for a relay with an
// Inheritance, which until then takes nothing; a second call does nothing.
func (r *Relay) Begin(sessions []Inherited) error {
	reset := make(map[member]flow.Reason)
	err := r.begin(sessions, reset)
	r.endFlows(reset)
	return err
}

// begin is Begin, but for the flows that are to be ended.
func (r *Relay) begin(sessions []Inherited, reset map[member]flow.Reason) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.inherit.holding || r.closing {
		for _, s := range sessions {
			unix.Close(s.FD)
		}
		return errNotNow
	}
	r.inherit.holding = false
	err := r.beginUDPLocked(sessions)
	for key, l := range r.listeners.open {
		if fe, ok := r.store.Snapshot().Frontend(key); ok {
			err = errors.Join(err, l.setSilent(!fe.Usable()))
		}
	}
	for _, l := range r.inherit.unwatched {
		r.watchListener(l)
	}
	r.inherit.unwatched = nil
	r.inherit.closeRest()
	r.sweepLocked()
	if r.judged { // before there was anything to judge
		r.judgeAdopted(r.store.Snapshot(), reset)
	}
	return err
}
