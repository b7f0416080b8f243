package bpf

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// learnBridges keeps which devices are ports of bridges, and those bridges' hardware addresses.
func (d *Divert) learnBridges(all []netlink.Link) error {
	now := bridgesOf(all)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	for port := range d.bridges {
		if _, ok := now[port]; ok {
			continue
		}
		if err := forget(d.objects.DivertPorts, port); err != nil {
			return fmt.Errorf("forget the bridge of device %d: %w", port, err)
		}
		delete(d.bridges, port)
	}
	for port, b := range now {
		if d.bridges[port] == b {
			continue
		}
		if err := d.objects.DivertPorts.Put(port, b); err != nil {
			return fmt.Errorf("note the bridge of device %d: %w", port, err)
		}
		d.bridges[port] = b
	}
	return nil
}

func bridgesOf(all []netlink.Link) map[uint32]divertBridge {
	found := make(map[uint32]divertBridge)
	for _, l := range all {
		m, err := among(all)(l.Attrs().MasterIndex)
		if err != nil || m.Type() != "bridge" || len(m.Attrs().HardwareAddr) != 6 {
			continue
		}
		found[uint32(l.Attrs().Index)] = divertBridge{Address: [6]byte(m.Attrs().HardwareAddr)}
	}
	return found
}
