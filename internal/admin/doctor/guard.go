package doctor

import "errors"

// errNoGuard says that nobody brought one.
var errNoGuard = errors.New("not part of this program")

// probeGuard attaches a guard in a network namespace that ends with the probe.
func probeGuard(h *host) Finding {
	const todo = "bind the host's own services to addresses of their own, or filter their ports at the VIPs"
	switch err := h.guard(); {
	case errors.Is(err, errNoNamespace):
		return Finding{Answer: Inconclusive, Detail: err.Error()}
	case err != nil:
		return absent(todo, "VIPs that are local by a route answer wherever this host listens on the wildcard address, each frontend takes a descriptor, "+
			"and clients outside of source ranges are reset after they have connected: %v", err)
	}
	return present("a VIP answers at its frontends only, and all TCP frontends share few sockets (sklookup)")
}

// guarded reports whether an instance would have a guard.
func (h *host) guarded() bool { return h.guard() == nil }
