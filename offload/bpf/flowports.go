package bpf

import (
	"fmt"
	"net"

	"github.com/cilium/ebpf"
)

// AllowXDP lets the XDP program take packets from a device and send packets to it, given the device's address: one whose
// driver can both run the program and take frames that came in elsewhere. Until then it leaves everything to the others.
func (f *Flows) AllowXDP(ifindex int, mac net.HardwareAddr) error {
	var p flowPort
	if copy(p.Mac[:], mac) != len(p.Mac) || len(mac) != len(p.Mac) {
		return fmt.Errorf("allow XDP at device %d: not an Ethernet address: %s", ifindex, mac)
	}
	if err := f.maps.FlowPorts.Update(uint32(ifindex), p, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("allow XDP at device %d: %w", ifindex, err)
	}
	return nil
}

// ForbidXDP takes that back.
func (f *Flows) ForbidXDP(ifindex int) error {
	if err := forget(f.maps.FlowPorts, uint32(ifindex)); err != nil {
		return fmt.Errorf("forbid XDP at device %d: %w", ifindex, err)
	}
	return nil
}
