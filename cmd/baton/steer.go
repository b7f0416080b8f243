package main

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/steer"
	"github.com/baton-lb/baton/offload"
	"github.com/baton-lb/baton/offload/bpf"
)

// steerPorts are the source ports of clients that are masked in mode steer.
func steerPorts(p offload.PortParams) bpf.SteerOptions {
	first, last := p.Steered()
	return bpf.SteerOptions{FirstPort: first, LastPort: last}
}

// reach finds how backends are reached, for mode steer.
type reach struct {
	addresses []netip.Addr // source.addresses
	keeps     func(client, backend netip.Addr) (flow.NotTransparent, bool)
}

// stranger is a client of the backend's family that is on no network of this host (RFC 5737, RFC 3849).
func stranger(backend netip.Addr) netip.Addr {
	if backend.Is4() {
		return netip.MustParseAddr("192.0.2.1")
	}
	return netip.MustParseAddr("2001:db8::1")
}

// To says which address of this host a backend sees instead of a client's, and whether it may see the client's.
func (r reach) To(backend netip.Addr) (masked netip.Addr, keep bool, err error) {
	why, _ := r.keeps(stranger(backend), backend)
	for _, a := range r.addresses {
		if a.Is4() == backend.Is4() {
			return a, why == "", nil
		}
	}
	routes, err := netlink.RouteGet(backend.AsSlice())
	if err != nil || len(routes) == 0 {
		return netip.Addr{}, false, fmt.Errorf("find the route to %s: %w", backend, err)
	}
	masked, _ = netip.AddrFromSlice(routes[0].Src)
	return masked.Unmap(), why == "", nil
}

// openSteer has flows of mode steer begin in the kernel. Without it the relay takes them: it listens at their frontends too.
func (in *instance) openSteer(addresses []netip.Addr) {
	p, err := in.kernel.flows.Steer()
	if err == nil {
		in.steer, err = steer.New(steer.Options{
			Program: p, Registry: in.registry, Log: in.log, Poke: in.poker(),
			Reach: reach{addresses, func(client, backend netip.Addr) (flow.NotTransparent, bool) {
				return in.transparency.Ask(client, backend)
			}}.To,
		})
	}
	if err != nil {
		in.log.Error("no flow can be steered: services with mode steer are proxied (see baton doctor)", "err", err)
	}
}

// poker asks peers where they stand; nil = they cannot be asked.
func (in *instance) poker() func(from, to netip.AddrPort) error {
	pokes, err := offload.OpenPokes()
	if err != nil {
		in.log.Warn("peers of steered connections that are ended here are told when they send the next time", "err", err)
		return nil
	}
	in.onClose(pokes.Close)
	return pokes.Poke
}

// registerSteer has the store program what is steered. It comes after everything that it asks.
func (in *instance) registerSteer() {
	if in.steer != nil {
		in.steer.Register(in.store)
	}
}
