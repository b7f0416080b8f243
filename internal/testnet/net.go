package testnet

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Net is a set of hosts and the links between them. It ends with its test.
type Net struct {
	t TB

	// mu guards what follows.
	mu    sync.Mutex
	hosts map[string]*Host
	links int
}

// New makes a network without hosts. It needs root: see [RequireRoot].
func New(t TB) *Net {
	t.Helper()
	RequireRoot(t)
	return &Net{t: t, hosts: make(map[string]*Host)}
}

// Host makes a host: a fresh network namespace with its loopback up. The name is
// for messages and must be new in this network.
func (n *Net) Host(name string) *Host {
	n.t.Helper()
	n.mu.Lock()
	_, taken := n.hosts[name]
	n.mu.Unlock()
	if taken {
		n.t.Fatalf("host %s: there is one already", name)
		return nil
	}
	h, err := newHost(n.t, name)
	if err != nil {
		n.t.Fatalf("host %s: %v", name, err)
		return nil
	}
	n.t.Cleanup(h.close)
	n.mu.Lock()
	n.hosts[name] = h
	n.mu.Unlock()
	return h
}

// subnets returns the next link's prefixes: 10.202.i.0/24 and fd00:202:i::/64.
func (n *Net) subnets() (v4, v6 netip.Prefix) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := n.links
	n.links++
	a4 := netip.AddrFrom4([4]byte{10, 202 + byte(i>>8), byte(i), 0})
	a6 := netip.AddrFrom16([16]byte{0: 0xfd, 2: 0x02, 3: 0x02, 4: byte(i >> 8), 5: byte(i)})
	return netip.PrefixFrom(a4, 24), netip.PrefixFrom(a6, 64)
}

// defaults are the sysctls that a new namespace would copy from the machine's
// own, or that would make it wait. All are written before a device exists.
var defaults = [][2]string{
	{"net.ipv4.conf.all.rp_filter", "0"},
	{"net.ipv4.conf.default.rp_filter", "0"},
	{"net.ipv4.ip_forward", "0"},
	{"net.ipv6.conf.all.disable_ipv6", "0"},
	{"net.ipv6.conf.default.disable_ipv6", "0"},
	{"net.ipv6.conf.lo.disable_ipv6", "0"},
	{"net.ipv6.conf.default.accept_dad", "0"},
	{"net.ipv6.conf.default.dad_transmits", "0"},
	{"net.ipv6.conf.default.accept_ra", "0"},
	{"net.ipv6.conf.all.keep_addr_on_down", "1"},
	{"net.ipv6.conf.default.keep_addr_on_down", "1"},
}

func newHost(t TB, name string) (_ *Host, err error) {
	ns, err := newNamespace()
	if err != nil {
		return nil, err
	}
	h := &Host{t: t, name: name, ns: ns}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	for _, d := range defaults {
		if err := h.writeSysctl(d[0], d[1]); err != nil {
			return nil, err
		}
	}
	if h.nl, err = netlink.NewHandleAt(ns); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	lo, err := h.nl.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("find lo: %w", err)
	}
	if err := h.nl.LinkSetUp(lo); err != nil {
		return nil, fmt.Errorf("set lo up: %w", err)
	}
	return h, nil
}

// newNamespace makes a namespace that only the returned descriptor holds.
func newNamespace() (netns.NsHandle, error) {
	ns := netns.None()
	var inner error
	err := onOwnThread(func() {
		if ns, inner = netns.New(); inner != nil {
			inner = fmt.Errorf("make network namespace: %w", inner)
		}
	})
	if err == nil {
		err = inner
	}
	return ns, err
}
