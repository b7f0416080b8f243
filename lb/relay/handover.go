package relay

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/baton-lb/baton/internal/flow"
)

// Handover gives the sockets at which a relay waits for clients to the relay of
// another process. While it lasts the control plane stands still: no socket is
// opened or closed, no route changes. Open flows are not touched, and the relay
// goes on taking connections; UDP stands still from PauseUDP on, and datagrams
// wait in their sockets.
//
//	Relay.Handover → Sockets → PauseUDP → Sessions → Release: the others have them
//	                                               ↘ Resume: nothing has happened
//
// Resume or Release must be called, once.
type Handover struct {
	r      *Relay
	paused bool
}

// errNotNow refuses a handover.
var errNotNow = errors.New("the relay has stopped to take connections, or has not begun yet")

// Handover begins one.
func (r *Relay) Handover() (*Handover, error) {
	r.mu.Lock()
	if r.closing || r.inherit.holding {
		r.mu.Unlock()
		return nil, errNotNow
	}
	return &Handover{r: r}, nil
}

// Loops is how many event loops there are.
func (h *Handover) Loops() int { return len(h.r.workers) }

// VIPs lists the addresses that have a route of ours.
func (h *Handover) VIPs() []netip.Addr {
	return slices.SortedFunc(maps.Keys(h.r.vips.routed), netip.Addr.Compare)
}

// Sockets calls each with a few sockets at a time until it has been given all at
// which clients are waited for. The descriptors are closed when it returns.
func (h *Handover) Sockets(each func([]Handed, []int) error) error {
	var all []Inherited
	for key, l := range h.r.listeners.open {
		all = append(all, Inherited{Handed{Kind: HandedListener, Frontend: key.Address, Silent: l.silent}, l.fd})
	}
	for ipv4, l := range h.r.guarding.shared {
		all = append(all, Inherited{Handed{Kind: HandedShared, IPv4: ipv4}, l.fd})
	}
	for some := range slices.Chunk(all, handedBatch) {
		var out handing
		for _, s := range some {
			if err := out.add(s.Handed, s.FD); err != nil {
				out.drop()
				return err
			}
		}
		if err := out.pass(each); err != nil {
			return err
		}
	}
	return h.udpSockets(each)
}

// Resume ends the handover: everything is as it was.
func (h *Handover) Resume() {
	defer h.r.mu.Unlock()
	if h.paused {
		h.resumeUDP()
	}
}

// Release ends the handover: the sockets, the routes and the UDP sessions are the
// other relay's. Connections that wait to be accepted wait for it. What is open
// stays, until Drain or Close.
func (h *Handover) Release() {
	r := h.r
	defer r.mu.Unlock()
	r.closing = true
	r.guarding.guard = nil // the other one has its own; nothing may be closed at frontends that it serves
	all := slices.Collect(maps.Values(r.listeners.open))
	all = slices.AppendSeq(all, maps.Values(r.guarding.shared))
	for _, w := range r.workers {
		_ = w.loop.Call(func() {
			for _, l := range all {
				w.leaveListener(l)
			}
		})
	}
	for _, l := range all {
		_ = l.sock.Close()
		r.budget.put(1)
	}
	clear(r.listeners.open)
	clear(r.guarding.shared)
	for _, w := range r.workers {
		_ = w.loop.Call(w.udp.leaveSessions)
	}
	r.closeUDPLocked(slices.Collect(maps.Values(r.listeners.udp)), flow.ReasonShutdown)
	r.vips.leave()
}
