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
	kept4   bool   // an IPv4 route of ours is there and stays
	new4    bool   // one is among the changes
	report  Report // as it is without the changes
}

// change is a route to make, or to replace for another hint.
type change struct {
	vip, hint netip.Addr
	replace   bool
	again     bool // it may have been made already
}

// makePlan compares what is wanted with what the host has.
func makePlan(host *Host, vips []netip.Addr) *plan {
	p := &plan{report: Report{Local: make(map[netip.Addr]string), Refused: make(map[netip.Addr]error)}}
	wanted := make(map[netip.Addr]bool, len(vips))
	for _, vip := range vips {
		wanted[vip.Unmap()] = true
	}
	hint4, hint6 := host.source(true, wanted), host.source(false, wanted)
	for _, vip := range sortedKeys(wanted) {
		hint := hint6
		if vip.Is4() {
			hint = hint4
		}
		p.want(host, vip, hint)
	}
	for _, vip := range sortedKeys(host.ours) {
		if !wanted[vip] {
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
		p.kept4 = p.kept4 || vip.Is4()
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
	p.new4 = p.new4 || vip.Is4()
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
