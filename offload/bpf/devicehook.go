package bpf

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// hook is where a program sits on a device.
type hook int

const (
	hookIngress hook = iota
	hookEgress
	hookXDP
	hooks
)

// clsactMark stands in the place of a hook in the name of the pin that says that a device's clsact is ours.
const clsactMark = hooks

var hookNames = [hooks + 1]string{"ingress", "egress", "xdp", "qdisc"}

func (h hook) String() string { return hookNames[h] }

func (h hook) attachType() ebpf.AttachType {
	switch h {
	case hookIngress:
		return ebpf.AttachTCXIngress
	case hookEgress:
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachXDP
}

// parent is the hook's in the clsact qdisc.
func (h hook) parent() uint32 {
	if h == hookEgress {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

func (d *devices) program(h hook) *ebpf.Program {
	return [hooks]*ebpf.Program{d.programs.Ingress, d.programs.Egress, d.programs.XDP}[h]
}

// linkName is under which name a device's link is pinned.
func linkName(h hook, index int) string { return fmt.Sprintf("%s-%d", h, index) }

func parseLinkName(name string) (h hook, index int, ok bool) {
	word, number, _ := strings.Cut(name, "-")
	for h = range hook(len(hookNames)) {
		if hookNames[h] == word {
			n, err := fmt.Sscanf(number, "%d", &index)
			return h, index, n == 1 && err == nil && linkName(h, index) == name
		}
	}
	return 0, 0, false
}
