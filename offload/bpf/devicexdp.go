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
	if why := unfitForXDP(l); why != "" {
		return nil, why
	}
	return d.attachNative(l)
}

// unfitForXDP says why a device gets no XDP program; "" = it gets one unless somebody else has put one there. It asks in the
// calling thread's namespace.
func unfitForXDP(l netlink.Link) string {
	if l.Type() != "device" {
		return l.Type() + " is no physical device"
	}
	return xdpLacks(l.Attrs().Index)
}

// xdpTaken says that a program is at a device, whoever has put it there; "" = none is.
func xdpTaken(l netlink.Link) string {
	if other := xdpOther(l); other != "" {
		return "an XDP program is there already" + other
	}
	return ""
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
