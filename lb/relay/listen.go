package relay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/store"
)

// listener is one listening socket, watched by every worker.
type listener struct {
	sock      *capture.Listener
	fd        int
	addr      netip.AddrPort
	shared    bool      // by many frontends: its own address says nothing
	silent    bool      // no connection gets in, and none is refused
	keepAlive KeepAlive // what accepted sockets inherit
}

// setKeepAlive prepares the listener for its service, for connections to come.
func (l *listener) setKeepAlive(k KeepAlive) error {
	if l.keepAlive == k {
		return nil
	}
	if err := setTCPOptions(l.fd, k); err != nil {
		return err
	}
	l.keepAlive = k
	return nil
}

// setSilent shuts the listener up, or opens it again. What a filter keeps out the
// kernel drops without a word, SYNs included.
func (l *listener) setSilent(silent bool) (err error) {
	switch {
	case l.silent == silent:
		return nil
	case silent:
		none := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
		err = unix.SetsockoptSockFprog(l.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &none})
	default:
		err = unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	}
	if err != nil {
		return fmt.Errorf("make a listener silent: %w", err)
	}
	l.silent = silent
	return nil
}

// listeners are the sockets at which the relay listens. Relay.mu guards them.
type listeners struct {
	taking    taking
	open      map[lb.FrontendKey]*listener
	byService map[string][]lb.FrontendKey

	udp   map[lb.FrontendKey]*udpListener
	udpOf map[string][]lb.FrontendKey
}

func (l *listeners) init(t taking) {
	l.taking = t
	l.open = make(map[lb.FrontendKey]*listener)
	l.byService = make(map[string][]lb.FrontendKey)
	l.udp = make(map[lb.FrontendKey]*udpListener)
	l.udpOf = make(map[string][]lb.FrontendKey)
}

// programFrontends makes routes and sockets those of the snapshot. Both are one
// programmer, so that a frontend whose address cannot be had fails once, and has
// its socket when a retry brings the address.
func (r *Relay) programFrontends(_ context.Context, c store.Change) []store.Failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return nil
	}
	if err := r.knowHostLocked(c); err != nil {
		return failRest(c, nil, err)
	}
	r.warnUnguardedLocked(c)
	failures := r.programVIPsLocked(c)
	without := failedOf(failures)
	if err := r.closeFirstLocked(c); err != nil {
		r.guarding.note(c)
		return failRest(c, failures, err)
	}
	failures = append(failures, r.programListenersLocked(c, without)...)
	return r.answerAllLocked(c, failures)
}

// programListenersLocked makes the sockets those of the snapshot, but for
// frontends without their address. A frontend without usable backends has none:
// the kernel then refuses its clients at once, which no process that has to
// accept first can do. Those that come through a shared socket have none either.
func (r *Relay) programListenersLocked(c store.Change, without map[lb.FrontendKey]struct{}) []store.Failure {
	wanted := r.wantedListeners(c)
	r.closeListenersLocked(r.listeners.unwanted(c.Services, wanted))
	var failures []store.Failure
	host := sync.OnceValues(r.hostLocked) // read when it is needed
	for key, fe := range wanted {
		if _, ok := without[key]; ok {
			continue
		}
		var err error
		if r.throughSharedLocked(key) {
			err = r.shareLocked(fe)
		} else {
			err = r.ensureListenerLocked(fe, host)
		}
		if err != nil {
			failures = append(failures, failure(fe, err))
		}
		if r.listeners.open[key] != nil { // though perhaps not as it should be
			r.listeners.note(fe.Service.Name, key)
		}
	}
	return append(failures, r.programUDPLocked(c, without, host)...)
}

func (r *Relay) ensureListenerLocked(fe *store.Frontend, host func() (*capture.Host, error)) error {
	k, silent := keepAliveOf(fe.Service.Timeouts), !fe.Usable()
	if l := r.listeners.open[fe.FrontendKey]; l != nil {
		return errors.Join(l.setKeepAlive(k), r.silenceLocked(l, silent))
	}
	h, err := host()
	if err != nil {
		return fmt.Errorf("read this host's addresses: %w", err)
	}
	return r.listenLocked(fe.FrontendKey, k, silent, h)
}

// wantedListeners lists the frontends of the changed services that take
// connections, or are to swallow them without a guard's help.
func (r *Relay) wantedListeners(c store.Change) map[lb.FrontendKey]*store.Frontend {
	wanted := make(map[lb.FrontendKey]*store.Frontend)
	for _, name := range c.Services {
		for _, fe := range proxied(c.To, name) {
			if fe.Proto == flow.TCP && (fe.Usable() || r.swallows(fe)) {
				wanted[fe.FrontendKey] = fe
			}
		}
	}
	return wanted
}

// swallows reports whether a frontend without usable backends keeps a socket of
// its own, in which what comes is lost, or its port, where the guard does that. At a
// VIP nobody else can have the port.
func (r *Relay) swallows(fe *store.Frontend) bool {
	_, protected := r.guarding.protected[fe.Address.Addr()]
	return fe.WhenNone == lb.Drop && !protected
}

// unwanted lists what is open for the changed services and not wanted by any of
// them, and forgets whose the rest was: programListenersLocked notes that anew.
func (l *listeners) unwanted(services []string, wanted map[lb.FrontendKey]*store.Frontend) []lb.FrontendKey {
	var gone []lb.FrontendKey
	for _, name := range services {
		for _, key := range l.byService[name] {
			if _, ok := wanted[key]; !ok {
				gone = append(gone, key)
			}
		}
		delete(l.byService, name)
	}
	return gone
}

func (l *listeners) note(service string, key lb.FrontendKey) {
	l.byService[service] = append(l.byService[service], key)
}

func (r *Relay) listenLocked(key lb.FrontendKey, k KeepAlive, silent bool, host *capture.Host) error {
	mode, err := r.listeners.taking.decide(key.Address.Addr(), host)
	if err != nil {
		return err
	}
	if !r.budget.holds(len(r.listeners.open) + 1) {
		return errNoDescriptors
	}
	shared, err := r.listeners.share(key)
	if err != nil {
		return err
	}
	sock, was, err := r.inherit.listen(key, capture.ListenParams{AnyIP: mode != capture.Bind, ReusePort: shared})
	if err != nil {
		return err
	}
	l := &listener{sock: sock, fd: sock.FD(), addr: key.Address, silent: was}
	if err := errors.Join(l.setKeepAlive(k), r.silenceLocked(l, silent)); err != nil {
		_ = sock.Close()
		return fmt.Errorf("prepare the socket at %s: %w", key, err)
	}
	r.listeners.open[key] = l
	r.budget.hold(1)
	r.watchListener(l)
	return nil
}

func (r *Relay) watchListener(l *listener) {
	if r.inherit.holding {
		r.inherit.unwatched = append(r.inherit.unwatched, l)
		return
	}
	for _, w := range r.workers {
		w.loop.Post(func() { w.addListener(l) })
	}
}

// share lets a frontend at the wildcard address and others at addresses of their
// own listen on one port, and reports whether there are such others. The kernel
// gives a connection to the socket that is bound most exactly.
func (l *listeners) share(key lb.FrontendKey) (shared bool, err error) {
	addr := key.Address.Addr()
	for _, other := range l.onPort(key) {
		if other.addr.Addr().IsUnspecified() == addr.IsUnspecified() {
			continue
		}
		shared = true
		if err := unix.SetsockoptInt(other.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return false, fmt.Errorf("share port %d: %w", key.Address.Port(), err)
		}
	}
	return shared, nil
}

// onPort lists the sockets that may be in the way of key: for an address of its
// own that is the wildcard's only.
func (l *listeners) onPort(key lb.FrontendKey) (found []*listener) {
	addr := key.Address.Addr()
	if !addr.IsUnspecified() {
		wild := lb.FrontendKey{Proto: key.Proto, Address: netip.AddrPortFrom(unspecified(addr), key.Address.Port())}
		if other := l.open[wild]; other != nil {
			found = append(found, other)
		}
		return found
	}
	for _, other := range l.open {
		if other.addr.Port() == key.Address.Port() && other.addr.Addr().Is4() == addr.Is4() {
			found = append(found, other)
		}
	}
	return found
}

// closeListenersLocked closes sockets once no loop watches them any more.
func (r *Relay) closeListenersLocked(keys []lb.FrontendKey) {
	if len(keys) == 0 {
		return
	}
	closing := make([]*listener, len(keys))
	for i, key := range keys {
		closing[i] = r.listeners.open[key]
		delete(r.listeners.open, key)
	}
	r.closeListeners(closing)
}

func (r *Relay) closeListeners(closing []*listener) {
	r.inherit.unwatched = slices.DeleteFunc(r.inherit.unwatched, func(l *listener) bool { return slices.Contains(closing, l) })
	for _, w := range r.workers {
		_ = w.loop.Call(func() {
			for _, l := range closing {
				w.removeListener(l)
			}
		})
	}
	for _, l := range closing {
		_ = l.sock.Close()
		r.budget.put(1)
	}
}

// stopListening closes every listener, for good.
func (r *Relay) stopListening() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return
	}
	r.closing = true
	r.refuseAllLocked(flow.TCP)
	all := make([]lb.FrontendKey, 0, len(r.listeners.open))
	for key := range r.listeners.open {
		all = append(all, key)
	}
	r.closeListenersLocked(all)
	r.closeSharedLocked()
	for _, w := range r.workers {
		_ = w.loop.Call(func() { w.stopping = true })
	}
}

// taking is how addresses are to be taken.
type taking struct {
	mode    capture.Mode
	guarded bool
}

// decide is capture.Decide, with the wildcard address bound as it is.
func (t taking) decide(a netip.Addr, host *capture.Host) (capture.Mode, error) {
	if a.IsUnspecified() {
		return capture.Bind, nil
	}
	return capture.Decide(t.mode, a, host, t.guarded)
}
