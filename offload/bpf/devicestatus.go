package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/baton-lb/baton/internal/dump"
)

// Device is how our programs sit on a network device, or would, or why not.
type Device struct {
	Index int
	Name  string
	How   string // "tcx" | "clsact"; "" = not at all
	XDP   string // "native", or why not; "" = not asked for
	Why   string // why not at all
}

func (d Device) String() string {
	switch {
	case d.How == "":
		return fmt.Sprintf("%s: %s", d.Name, d.Why)
	case d.XDP != "":
		return fmt.Sprintf("%s: %s, XDP: %s", d.Name, d.How, d.XDP)
	}
	return fmt.Sprintf("%s: %s", d.Name, d.How)
}

// SurveyDevices says for every device of the calling thread's network namespace how programs would be attached to it.
// Nothing is changed.
func SurveyDevices() ([]Device, error) {
	nl, err := netlink.NewHandle()
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	all, err := dump.Whole(nl.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	how := "tcx"
	if errors.Is(featureTCX.Have(), ErrNotSupported) {
		how = "clsact"
	}
	var list []Device
	for _, l := range all {
		dev := Device{Index: l.Attrs().Index, Name: l.Attrs().Name, Why: unfit(l, among(all))}
		if dev.Why == "" {
			dev.How, dev.XDP = how, cmp.Or(unfitForXDP(l), xdpTaken(l), xdpNative)
		}
		list = append(list, dev)
	}
	sortDevices(list)
	return list, nil
}

// status lists the devices that were looked at, by number.
func (d *devices) status() []Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []Device
	for _, dev := range d.on {
		list = append(list, dev.status)
	}
	for index, dev := range d.unfit {
		if d.on[index] == nil {
			list = append(list, dev)
		}
	}
	sortDevices(list)
	return list
}

func sortDevices(list []Device) {
	slices.SortFunc(list, func(a, b Device) int { return cmp.Compare(a.Index, b.Index) })
}

// among finds devices in a list.
func among(all []netlink.Link) func(int) (netlink.Link, error) {
	return func(index int) (netlink.Link, error) {
		for _, l := range all {
			if l.Attrs().Index == index {
				return l, nil
			}
		}
		return nil, netlink.LinkNotFoundError{}
	}
}
