package relay

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/store"
)

// sharedKeepAlive is what connections inherit from a shared socket: what services
// want that say nothing else.
var sharedKeepAlive = keepAliveOf(lb.Default("").Timeouts)

// shareLocked has a shared socket ready for a frontend's connections. At the wildcard
// address the guard would take them away from whoever listens at the port, so nobody
// may when it is taken. From then on it is ours, like that of a VIP.
func (r *Relay) shareLocked(fe *store.Frontend) error {
	if _, ours := r.guarding.told[fe.FrontendKey]; fe.Address.Addr().IsUnspecified() && !ours {
		if err := capture.Free(fe.Address); err != nil {
			return err
		}
	}
	if !fe.Usable() {
		return nil
	}
	return r.ensureSharedLocked(fe.Address.Addr().Is4())
}

// ensureSharedLocked opens the socket that the frontends of a family share.
func (r *Relay) ensureSharedLocked(ipv4 bool) error {
	g := &r.guarding
	if g.shared[ipv4] != nil {
		return nil
	}
	if !r.budget.holds(len(r.listeners.open) + 1) {
		return errNoDescriptors
	}
	at := netip.IPv6Loopback()
	if ipv4 {
		at = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	sock, err := r.inherit.listenShared(at)
	if err != nil {
		return fmt.Errorf("open a shared socket: %w", err)
	}
	l := &listener{sock: sock, fd: sock.FD(), addr: sock.Addr(), shared: true}
	if err := errors.Join(l.setKeepAlive(sharedKeepAlive), g.guard.Share(l.fd)); err != nil {
		_ = sock.Close()
		return fmt.Errorf("prepare a shared socket: %w", err)
	}
	g.shared[ipv4] = l
	r.budget.hold(1)
	r.watchListener(l)
	return nil
}

// closeSharedLocked closes the shared sockets, for good.
func (r *Relay) closeSharedLocked() {
	r.closeListeners(slices.Collect(maps.Values(r.guarding.shared)))
	clear(r.guarding.shared)
}
