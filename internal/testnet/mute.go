package testnet

import (
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// mutePreference is the first after the table of local addresses, so that ARP and
// neighbour discovery still answer.
const mutePreference = 1

// Mute makes the host vanish for its peers: what it sends over IP is dropped
// without a trace, resets and acknowledgements included, while its sockets and
// its link stay up. Its neighbours keep finding it.
func (h *Host) Mute() { h.t.Helper(); h.muteRules(true) }

// Unmute undoes Mute.
func (h *Host) Unmute() { h.t.Helper(); h.muteRules(false) }

func (h *Host) muteRules(on bool) {
	h.t.Helper()
	change := h.nl.RuleDel
	if on {
		change = h.nl.RuleAdd
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rule := netlink.NewRule()
		rule.Family = family
		rule.Priority = mutePreference
		rule.IifName = "lo" // what the host itself sends
		rule.Type = unix.FR_ACT_BLACKHOLE
		if err := change(rule); err != nil {
			h.t.Fatalf("host %s: mute %v: %v", h.name, on, err)
		}
	}
}
