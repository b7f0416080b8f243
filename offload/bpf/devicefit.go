package bpf

import (
	"strings"

	"github.com/vishvananda/netlink"
)

// masters are devices that deliver the packets of others, after the programs at those: a packet would meet our programs
// twice. VRF is none: its packets meet programs where they arrive only.
var masters = map[string]bool{"bridge": true, "bond": true, "team": true, "openvswitch": true}

// unfit says why a device gets no programs; "" = it gets them. byIndex finds the device that this one belongs to.
func unfit(l netlink.Link, byIndex func(int) (netlink.Link, error)) string {
	a := l.Attrs()
	switch {
	case a.Name == "lo":
		return "flows on loopback stay in userspace"
	case strings.HasPrefix(a.Name, lotPrefix) && l.Type() == "tuntap":
		return "a parking lot"
	case a.EncapType != "ether":
		return "packets have no Ethernet header (" + a.EncapType + ")"
	case a.MasterIndex == 0:
		return ""
	}
	m, err := byIndex(a.MasterIndex)
	if err == nil && masters[m.Type()] {
		return "belongs to " + m.Attrs().Name + ", which has them"
	}
	return ""
}
