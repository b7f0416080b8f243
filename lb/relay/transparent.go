package relay

import (
	"cmp"
	"net/netip"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// Transparency has answers to clients' addresses delivered to the relay's sockets,
// and knows where that can be right.
type Transparency interface {
	// Ask says why a backend is not to see a client's address, or "" when it
	// may; and whether its answers then come only as long as the relay's socket
	// is there. It is called on event loops and must not block.
	Ask(client, backend netip.Addr) (why flow.NotTransparent, onlySockets bool)
}

// showing is how a client is shown to the backend that is being dialled. The zero
// value is a service that does not ask.
type showing struct {
	client netip.AddrPort      // to be shown; the zero value is not
	as     flow.ClientAddress  // what the backend sees; "" = not asked for
	why    flow.NotTransparent // of masked
	stays  bool                // answers come to sockets only: the flow cannot leave userspace
}

// clientAddressOf is how a frontend's backends are to learn of clients.
func clientAddressOf(fe *store.Frontend) lb.ClientAddress {
	return cmp.Or(fe.ClientAddress, fe.Service.ClientAddress)
}

// show decides whether a backend may see a client's address.
func (r *Relay) show(fe *store.Frontend, client netip.AddrPort, backend netip.Addr) showing {
	if clientAddressOf(fe) != lb.Transparent {
		return showing{}
	}
	if len(fe.KeepSources) > 0 && !contains(fe.KeepSources, client.Addr()) {
		return showing{as: flow.ClientMasked, why: flow.NotTransparentOutside}
	}
	why, stays := flow.NotTransparentUnavailable, false
	if r.transparency != nil {
		why, stays = r.transparency.Ask(client.Addr(), backend)
	}
	if why != "" {
		return showing{as: flow.ClientMasked, why: why}
	}
	return showing{client: client, as: flow.ClientTransparent, stays: stays}
}

// from is the local address for the given try: the client's own, then its address
// with the kernel's choice of a port.
func (s *showing) from(try int) netip.AddrPort {
	if try == 0 {
		return s.client
	}
	return netip.AddrPortFrom(s.client.Addr(), 0)
}

// used notes from where the backend is dialled, and reports whether that is the
// client's address.
func (s *showing) used(local netip.AddrPort) bool {
	switch {
	case !s.client.IsValid() || local.Addr() != s.client.Addr():
		return false
	case local == s.client:
		s.as = flow.ClientTransparent
	default:
		s.as = flow.ClientPortChanged
	}
	return true
}

// tell notes it in the record.
func (s *showing) tell(rec *flow.Record) {
	if s.as != "" {
		rec.SeenAs(s.as, s.why)
	}
}
