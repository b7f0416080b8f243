package capture

import (
	"fmt"
	"net/netip"
	"slices"
)

// plan is what Ensure is going to do.
type plan struct {
	changes []change
	remove  []netip.Addr
	ipv4    bool   // an IPv4 route of ours is there and stays, or is to be made
	report  Report // as it is without the changes
}

// change is a route to make, or to replace for another hint.
type change struct {
	vip, hint netip.Addr
	replace   bool
	again     bool // it may have been made already
}

// makePlan compares what is wanted with what the host has.
func makePlan(host *Host, wanted map[netip.Addr]bool) *plan {
	gone := slices.DeleteFunc(sortedKeys(host.ours), func(vip netip.Addr) bool { return wanted[vip] })
	p := makeSmallPlan(host, wanted, sortedKeys(wanted), gone)
	p.report.Whole = true
	return p
}

// makeSmallPlan does so for some of the VIPs, wanted and not.
func makeSmallPlan(host *Host, wanted map[netip.Addr]bool, some, gone []netip.Addr) *plan {
	p := &plan{report: Report{Local: make(map[netip.Addr]string), Refused: make(map[netip.Addr]error)}}
	hint4, hint6 := host.source(true, wanted), host.source(false, wanted)
	for _, vip := range some {
		hint := hint6
		if vip.Is4() {
			hint = hint4
		}
		p.want(host, vip, hint)
	}
	for _, vip := range gone {
		if _, ours := host.ours[vip]; ours {
			p.remove = append(p.remove, vip)
		}
	}
	return p
}

// want sorts one VIP.
func (p *plan) want(host *Host, vip, hint netip.Addr) {
	if old, ok := host.ours[vip]; ok {
		if old != hint {
			p.changes = append(p.changes, change{vip: vip, hint: hint, replace: true})
		}
		p.report.Routed++
		p.ipv4 = p.ipv4 || vip.Is4()
		if by, ok := host.Local(vip); ok {
			p.report.Local[vip] = by
		}
		return
	}
	if err := host.Check(vip); err != nil {
		p.report.Refused[vip] = err
		return
	}
	if by, ok := host.Local(vip); ok {
		p.report.Local[vip] = by
		return
	}
	p.changes = append(p.changes, change{vip: vip, hint: hint})
	p.ipv4 = p.ipv4 || vip.Is4()
}

// unanswered warns of IPv4 AnyIP routes of others: what keeps our VIPs from being answered keeps theirs too.
func (h *Host) unanswered() (warnings []string) {
	warn := func(by string) {
		warnings = append(warnings, fmt.Sprintf("ARP is no longer answered for the addresses of %s, which is not ours, "+
			"unless they are configured on a device", by))
	}
	for _, a := range sortedKeys(h.local) {
		if a.Is4() && !a.IsLoopback() {
			warn(h.local[a])
		}
	}
	for prefix, by := range h.wide {
		if prefix.Addr().Is4() && !prefix.Addr().IsLoopback() {
			warn(by)
		}
	}
	slices.Sort(warnings) // told once, so always the same
	return warnings
}
