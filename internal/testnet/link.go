package testnet

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LinkSpec says how two hosts are joined. The zero value is an ordinary Ethernet.
type LinkSpec struct {
	MTU int // bytes; default 1500
}

// Port is one end of a link.
type Port struct {
	Host *Host
	Dev  string // eth0, eth1, ... in the order of the host's links
	IP4  netip.Addr
	IP6  netip.Addr
}

// Link is a veth pair between two hosts.
type Link struct {
	A, B Port

	// Net4 and Net6 are the prefixes that both ends are in.
	Net4, Net6 netip.Prefix
}

// Connect joins two hosts with an ordinary link.
func (n *Net) Connect(a, b *Host) Link {
	n.t.Helper()
	return n.Link(a, b, LinkSpec{})
}

// Link joins two hosts by a veth pair in subnets of its own; a has the first
// address of each, b the second. On return both ends carry packets.
func (n *Net) Link(a, b *Host, spec LinkSpec) Link {
	n.t.Helper()
	l, err := n.link(a, b, spec)
	if err != nil {
		n.t.Fatalf("link %s to %s: %v", a.name, b.name, err)
	}
	return l
}

func (n *Net) link(a, b *Host, spec LinkSpec) (Link, error) {
	v4, v6 := n.subnets()
	l := Link{A: a.nextPort(), B: b.nextPort(), Net4: v4, Net6: v6}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = l.A.Dev, spec.MTU
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: l.B.Dev, PeerNamespace: netlink.NsFd(b.ns)}
	if err := a.nl.LinkAdd(veth); err != nil {
		return l, fmt.Errorf("make veth pair: %w", err)
	}
	for _, p := range []Port{l.A, l.B} {
		if err := p.setUp(true); err != nil {
			return l, err
		}
	}
	l.A.IP4, l.A.IP6 = v4.Addr().Next(), v6.Addr().Next()
	l.B.IP4, l.B.IP6 = l.A.IP4.Next(), l.A.IP6.Next()
	for _, p := range []*Port{&l.A, &l.B} {
		if err := p.configure(v4.Bits(), v6.Bits()); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (h *Host) nextPort() Port {
	dev := fmt.Sprintf("eth%d", h.ports)
	h.ports++
	return Port{Host: h, Dev: dev}
}

// configure waits for the carrier and assigns the addresses: in this order they
// are usable when it returns.
func (p *Port) configure(bits4, bits6 int) error {
	if err := p.waitUp(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	h := p.Host
	if err := h.addAddr(p.Dev, netip.PrefixFrom(p.IP4, bits4)); err != nil {
		return err
	}
	if err := h.addAddr(p.Dev, netip.PrefixFrom(p.IP6, bits6)); err != nil {
		return err
	}
	if !h.IP4.IsValid() {
		h.IP4, h.IP6 = p.IP4, p.IP6
	}
	return nil
}

func (p *Port) waitUp(deadline time.Time) error {
	for {
		link, err := p.Host.nl.LinkByName(p.Dev)
		if err != nil {
			return fmt.Errorf("find %s: %w", p.Dev, err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wait for the carrier of %s: still %s", p.Dev, link.Attrs().OperState)
		}
		time.Sleep(time.Millisecond)
	}
}

// SetUp plugs the port in or pulls it out. Pulled out it keeps its IPv6
// addresses, but the kernel forgets the routes through it.
func (p Port) SetUp(up bool) {
	p.Host.t.Helper()
	if err := p.setUp(up); err != nil {
		p.Host.t.Fatalf("host %s: %v", p.Host.name, err)
	}
}

func (p Port) setUp(up bool) error {
	nl := p.Host.nl
	link, err := nl.LinkByName(p.Dev)
	if err != nil {
		return fmt.Errorf("find %s: %w", p.Dev, err)
	}
	set := nl.LinkSetDown
	if up {
		set = nl.LinkSetUp
	}
	if err := set(link); err != nil {
		return fmt.Errorf("set %s up=%v: %w", p.Dev, up, err)
	}
	return nil
}

func (h *Host) addAddr(dev string, prefix netip.Prefix) error {
	link, err := h.nl.LinkByName(dev)
	if err != nil {
		return fmt.Errorf("find %s: %w", dev, err)
	}
	addr := &netlink.Addr{IPNet: ipNet(prefix)}
	if prefix.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := h.nl.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("add %s to %s: %w", prefix, dev, err)
	}
	if prefix.Addr().Is6() {
		return h.waitJoined(link, prefix.Addr())
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
