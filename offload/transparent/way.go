package transparent

import (
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

const (
	// wayLifetime is how long what a route says is believed without asking again.
	wayLifetime = time.Second

	// waysKept is for how many addresses it is kept.
	waysKept = 1 << 16
)

// way is how this host reaches an address.
type way struct {
	local   bool // it is this host's own
	gateway bool // by a router
	device  int
	bridge  bool // the device is a bridge, or a VLAN on one
	tunnel  bool // the device leads to another host, wherever that is
	known   bool
	asked   time.Time
}

// far says that others stand between this host and the address, who may know a shorter way back.
func (w way) far() bool { return w.gateway || w.tunnel }

// judge says why a backend cannot see the client's address, or "".
//
// An answer goes from the backend to the client, wherever that leads. It passes by here when one of the two has no other
// way: when it is next to us, on a network that we are the router of. Whether we are the router of a network cannot be
// seen from here; whoever writes "transparent" says that we are. So masked is only what cannot be right whoever is the
// router: both are far and behind the same device, or one is in a tunnel from host to host, whose other end answers by its
// own way; or both are on one network, whose answers go from one to the other. On a bridge of ours these come by.
//
// A node of a cluster is the router of its pods alone, for which it has devices: a backend next to it, by the very device that
// leads to a client afar, is another node, which knows the router to that client as well as we do.
func judge(client, backend way, node bool) flow.NotTransparent {
	switch {
	case client.local || backend.local:
		return flow.NotTransparentHostLocal
	case !client.known || !backend.known:
		return "" // dialling says what is wrong
	case client.far() && backend.far() && (client.device == backend.device || client.tunnel || backend.tunnel):
		return flow.NotTransparentOtherWay
	case client.device == backend.device && !client.far() && !client.bridge:
		return flow.NotTransparentOtherWay
	case node && client.device == backend.device && client.far():
		return flow.NotTransparentOtherWay
	}
	return ""
}

// ways remembers for a moment what the kernel says of addresses: one client's connections follow each other.
type ways struct {
	kernel kernel
	node   bool // Options.Node
	now    func() time.Time

	mu    sync.Mutex // guards what follows
	by    map[netip.Addr]way
	kinds map[int]kind
}

// kind is what matters of a device.
type kind struct {
	bridge, tunnel bool
	asked          time.Time
}

func newWays(k kernel, node bool) *ways {
	return &ways{kernel: k, node: node, now: time.Now, by: make(map[netip.Addr]way), kinds: make(map[int]kind)}
}

// ask says why a backend cannot see a client's address, and whether answers to it are bridged.
func (w *ways) ask(client, backend netip.Addr) (why flow.NotTransparent, bridged bool) {
	switch {
	case client.Is4() != backend.Is4():
		return flow.NotTransparentFamily, false
	case client == backend:
		return flow.NotTransparentHairpin, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c, b := w.toLocked(client), w.toLocked(backend)
	return judge(c, b, w.node), c.bridge && c.device == b.device
}

func (w *ways) way(a netip.Addr) Way {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.toLocked(a)
	return Way{Here: found.local, Tunnel: found.tunnel, Bridge: found.bridge}
}

func (w *ways) toLocked(a netip.Addr) way {
	now := w.now()
	if found, ok := w.by[a]; ok && now.Sub(found.asked) < wayLifetime {
		return found
	}
	if len(w.by) >= waysKept {
		clear(w.by)
	}
	found := w.readLocked(a)
	found.asked = now
	w.by[a] = found
	return found
}

// readLocked asks the kernel, which answers at once: nothing goes out for it.
func (w *ways) readLocked(a netip.Addr) way {
	routes, err := w.kernel.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 {
		return way{}
	}
	r := &routes[0]
	k := w.kindLocked(r.LinkIndex)
	return way{
		known: true, local: r.Type == unix.RTN_LOCAL, gateway: r.Gw != nil || r.Via != nil,
		device: r.LinkIndex, bridge: k.bridge, tunnel: k.tunnel,
	}
}

func (w *ways) kindLocked(index int) kind {
	now := w.now()
	if found, ok := w.kinds[index]; ok && now.Sub(found.asked) < wayLifetime {
		return found
	}
	if len(w.kinds) >= waysKept {
		clear(w.kinds)
	}
	found := w.readKind(index)
	found.asked = now
	w.kinds[index] = found
	return found
}

// readKind asks for a device, or for the one below a VLAN.
func (w *ways) readKind(index int) (found kind) {
	for index != 0 {
		l, err := w.kernel.LinkByIndex(index)
		if err != nil {
			break
		}
		found.bridge, found.tunnel = l.Type() == "bridge", isTunnel(l)
		index = 0
		if l.Type() == "vlan" {
			index = l.Attrs().ParentIndex
		}
	}
	return found
}

// isTunnel tells. A TAP is the cable of a virtual machine, a TUN is not.
func isTunnel(l netlink.Link) bool {
	return tunnels[l.Type()] || l.Type() == "tuntap" && l.Attrs().EncapType != "ether"
}

// tunnels are the types of devices whose other end is another host.
var tunnels = map[string]bool{
	"vxlan": true, "geneve": true, "wireguard": true, "ipip": true, "sit": true, "ip6tnl": true,
	"gre": true, "gretap": true, "ip6gre": true, "ip6gretap": true, "vti": true, "vti6": true, "xfrm": true, "ppp": true,
}
