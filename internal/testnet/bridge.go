package testnet

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Bridge is a bridge of a host, to which others are joined: one network of many.
type Bridge struct {
	net  *Net
	Host *Host
	Dev  string
	link netlink.Link
}

// Bridge makes a bridge of a host, which has no address and no ports yet.
func (n *Net) Bridge(h *Host, dev string) *Bridge {
	n.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = dev
	b := &Bridge{net: n, Host: h, Dev: dev, link: &netlink.Bridge{LinkAttrs: attrs}}
	if err := b.up(); err != nil {
		n.t.Fatalf("host %s: bridge %s: %v", h.name, dev, err)
	}
	return b
}

func (b *Bridge) up() error {
	nl := b.Host.Netlink()
	if err := nl.LinkAdd(b.link); err != nil {
		return err
	}
	return nl.LinkSetUp(b.link)
}

// Join connects a host to the bridge, and says by which device. The device keeps the
// addresses of its link; those of the bridge's network are the caller's to add.
func (b *Bridge) Join(h *Host) (dev string) {
	b.net.t.Helper()
	l := b.net.Connect(b.Host, h)
	if err := b.enslave(l.A.Dev); err != nil {
		b.net.t.Fatalf("host %s: join %s to bridge %s: %v", b.Host.name, h.name, b.Dev, err)
	}
	return l.B.Dev
}

// enslave makes a device a port of the bridge, without addresses of its own.
func (b *Bridge) enslave(dev string) error {
	nl := b.Host.Netlink()
	port, err := nl.LinkByName(dev)
	if err != nil {
		return err
	}
	addrs, err := nl.AddrList(port, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if err := nl.AddrDel(port, &a); err != nil {
			return fmt.Errorf("remove %s: %w", a.IPNet, err)
		}
	}
	return nl.LinkSetMaster(port, b.link)
}
