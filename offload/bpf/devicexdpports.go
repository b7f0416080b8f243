package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// xdpPorts is who is told at which devices XDP may take frames and send them out, and with what address.
type xdpPorts interface {
	AllowXDP(ifindex int, mac net.HardwareAddr) error
	ForbidXDP(ifindex int) error
}

var _ xdpPorts = (*Flows)(nil)

// tellPort says what has become of XDP at a device, as often as it may have changed.
func (d *devices) tellPort(l netlink.Link, dev *device) error {
	mac := ""
	if dev.at[hookXDP] != nil {
		mac = l.Attrs().HardwareAddr.String()
	}
	if d.ports == nil || dev.told && dev.port == mac {
		return nil
	}
	var err error
	if mac == "" {
		err = d.ports.ForbidXDP(l.Attrs().Index) // it may have been another device's number
	} else {
		err = d.ports.AllowXDP(l.Attrs().Index, l.Attrs().HardwareAddr)
	}
	if err == nil {
		dev.told, dev.port = true, mac
	}
	return err
}

// The netdev family of generic netlink (linux/netdev.h).
const (
	netdevFamily       = "netdev"
	netdevCmdDevGet    = 1
	netdevAttrIfindex  = 1
	netdevAttrFeatures = 3

	netdevXDPRedirect = 1 << 1 // XDP_REDIRECT out of this device
	netdevXDPTransmit = 1 << 2 // into it
)

// xdpLacks says what a device's driver lacks to forward in XDP; "" = nothing. It asks in the calling thread's namespace.
func xdpLacks(index int) string {
	features, err := xdpFeatures(index)
	switch {
	case errors.Is(err, unix.ENOENT):
		return "what the driver can do in XDP can be asked from Linux 6.3 on"
	case err != nil:
		return err.Error()
	case features&netdevXDPRedirect == 0, features&netdevXDPTransmit == 0:
		return "the driver cannot send in XDP what came in elsewhere"
	}
	return ""
}

// genlHeader is struct genlmsghdr. That of package nl leaves its reserved half to chance, which this family refuses.
type genlHeader [nl.SizeofGenlmsg]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }

func xdpFeatures(index int) (uint64, error) {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if err != nil {
		return 0, fmt.Errorf("ask for the netdev family: %w", err)
	}
	request := nl.NewNetlinkRequest(int(family.ID), 0)
	request.AddData(genlHeader{netdevCmdDevGet, uint8(family.Version)})
	request.AddData(nl.NewRtAttr(netdevAttrIfindex, nl.Uint32Attr(uint32(index))))
	answers, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return 0, fmt.Errorf("ask for the driver's XDP: %w", err)
	}
	for _, b := range answers {
		attrs, err := nl.ParseRouteAttr(b[nl.SizeofGenlmsg:])
		if err != nil {
			return 0, fmt.Errorf("read the driver's XDP: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type == netdevAttrFeatures && len(a.Value) == 8 {
				return binary.NativeEndian.Uint64(a.Value), nil
			}
		}
	}
	return 0, nil
}
