package main

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/baton-lb/baton/lb/steer"
	steering "github.com/baton-lb/baton/lb/steer/program"
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
	keeps     func(backend netip.Addr) steering.Keep
}

// To says which address of this host a backend sees instead of a client's, and which clients' it may see.
func (r reach) To(backend netip.Addr) (masked netip.Addr, keep steering.Keep, err error) {
	keep = r.keeps(backend)
	for _, a := range r.addresses {
		if a.Is4() == backend.Is4() {
			return a, keep, nil
		}
	}
	routes, err := netlink.RouteGet(backend.AsSlice())
	if err != nil || len(routes) == 0 {
		return netip.Addr{}, keep, fmt.Errorf("find the route to %s: %w", backend, err)
	}
	masked, _ = netip.AddrFromSlice(routes[0].Src)
	return masked.Unmap(), keep, nil
}

// openSteer has flows of mode steer begin in the kernel. Without it the relay takes them: it listens at their frontends too.
func (in *instance) openSteer(addresses []netip.Addr) {
	p, err := in.kernel.flows.Steer()
	if err == nil {
		in.steer, err = steer.New(steer.Options{
			Program: p, Registry: in.registry, Log: in.log, Poke: in.poker(),
			Reach: reach{addresses, func(backend netip.Addr) steering.Keep { return in.transparency.Keep(backend) }}.To, // it is made later
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
