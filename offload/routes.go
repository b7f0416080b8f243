package offload

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

// routes answers where packets to an address would go, in the network namespace of
// whoever opened it. Answers are kept for a moment: the same backends are asked about
// again and again.
type routes struct {
	nl *netlink.Handle // immutable

	mu      sync.Mutex // guards what follows
	answers map[netip.Addr]route
	devices map[int]device
}

type route struct {
	at     time.Time
	err    error
	local  bool // an address of this host
	source netip.Addr
	device int
}

type device struct {
	at       time.Time
	ethernet bool
}

const (
	routeAge    = time.Second
	keptAnswers = 4096
)

func openRoutes() (*routes, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open route netlink: %w", err)
	}
	return &routes{nl: nl, answers: make(map[netip.Addr]route), devices: make(map[int]device)}, nil
}

func (r *routes) close() error {
	if r != nil {
		r.nl.Close()
	}
	return nil
}

// check says why the kernel cannot carry packets between two peers; "" = it can.
func (r *routes) check(peers ...netip.Addr) flow.NotOffloaded {
	for _, a := range peers {
		switch to := r.to(a); {
		case to.err != nil:
			return flow.NotOffloadedDevice
		case to.local:
			return flow.NotOffloadedHostLocal
		case !r.ethernet(to.device):
			return flow.NotOffloadedDevice
		}
	}
	return ""
}

// source is the address that the kernel would choose for packets to a.
func (r *routes) source(a netip.Addr) (netip.Addr, error) {
	to := r.to(a)
	if to.err == nil && !to.source.IsValid() {
		return netip.Addr{}, fmt.Errorf("route to %s has no source address", a)
	}
	return to.source, to.err
}

func (r *routes) to(a netip.Addr) route {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to, ok := r.answers[a]; ok && time.Since(to.at) < routeAge {
		return to
	}
	if len(r.answers) >= keptAnswers {
		clear(r.answers)
	}
	to := r.ask(a)
	r.answers[a] = to
	return to
}

func (r *routes) ask(a netip.Addr) route {
	to := route{at: time.Now()}
	list, err := r.nl.RouteGet(a.AsSlice())
	if err != nil || len(list) == 0 {
		to.err = fmt.Errorf("find route to %s: %w", a, err)
		return to
	}
	to.local, to.device = list[0].Type == unix.RTN_LOCAL, list[0].LinkIndex
	if source, ok := netip.AddrFromSlice(list[0].Src); ok {
		to.source = source.Unmap()
	}
	return to
}

// ethernet reports whether a device's packets have an Ethernet header: only there does
// the kernel's fast way begin and end.
func (r *routes) ethernet(index int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d, ok := r.devices[index]; ok && time.Since(d.at) < routeAge {
		return d.ethernet
	}
	d := device{at: time.Now()}
	if l, err := r.nl.LinkByIndex(index); err == nil {
		d.ethernet = l.Attrs().EncapType == "ether"
	}
	if len(r.devices) >= keptAnswers {
		clear(r.devices)
	}
	r.devices[index] = d
	return d.ethernet
}
