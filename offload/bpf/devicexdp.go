package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// xdpNative is the status of a device whose driver runs our program.
const xdpNative = "native"

// attachXDP puts the XDP program on a physical device whose driver has XDP. Without it packets take a little longer: so it
// returns why not, and no error. A program of somebody else is left alone.
func (d *devices) attachXDP(l netlink.Link) (attachment, string) {
	if l.Type() != "device" {
		return nil, l.Type() + " is no physical device"
	}
	if lacks := xdpLacks(l.Attrs().Index); lacks != "" {
		return nil, lacks
	}
	return d.attachNative(l)
}

func (d *devices) attachNative(l netlink.Link) (attachment, string) {
	a, err := d.attachLink(l, hookXDP, func(p *ebpf.Program) (link.Link, error) {
		return link.AttachXDP(link.XDPOptions{Interface: l.Attrs().Index, Program: p, Flags: link.XDPDriverMode})
	})
	switch {
	case err == nil:
		return a, xdpNative
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, "the driver has no XDP"
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return nil, "an XDP program of somebody else is there" + xdpOther(l)
	}
	return nil, err.Error()
}

func xdpOther(l netlink.Link) string {
	if x := l.Attrs().Xdp; x != nil && x.ProgId != 0 {
		return fmt.Sprintf(" (program %d)", x.ProgId)
	}
	return ""
}
