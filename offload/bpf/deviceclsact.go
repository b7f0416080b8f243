package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/dump"
)

// What tells our filters from those of others: name and handle. Their priority is the first that is free.
const (
	filterName   = "baton-" // and the set, and the hook
	filterHandle = 0xba70
)

// filterAttachment is a program that sits at a hook as a filter of clsact, where there is no tcx. The kernel keeps it until
// somebody removes it, whatever becomes of the process.
type filterAttachment struct {
	d     *devices
	hook  hook
	index int
}

// attachFilter gives our filter the program, without a moment between the two, or makes it.
func (d *devices) attachFilter(at netlink.Link, h hook) (*filterAttachment, error) {
	a := &filterAttachment{d: d, hook: h, index: at.Attrs().Index}
	if err := d.ensureClsact(at); err != nil {
		return nil, err
	}
	all, err := d.nl.FilterList(at, h.parent())
	if err != nil {
		return nil, fmt.Errorf("list filters at %s: %w", h, err)
	}
	f := ourFilter(all, d.programs.set, h)
	if f == nil {
		f = &netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: a.index, Parent: h.parent(), Handle: filterHandle,
				Priority: freePriority(all), Protocol: unix.ETH_P_ALL,
			},
			Name: filterName + d.programs.set + h.String(),
		}
	}
	f.DirectAction, f.Fd = true, d.program(h).FD()
	if err := d.nl.FilterReplace(f); err != nil {
		return nil, fmt.Errorf("set the filter at %s: %w", h, err)
	}
	return a, nil
}

// ourFilter finds it among those of a hook; nil = it is not there.
func ourFilter(all []netlink.Filter, set string, h hook) *netlink.BpfFilter {
	for _, f := range all {
		b, ok := f.(*netlink.BpfFilter)
		if ok && b.Name == filterName+set+h.String() && b.Handle == filterHandle {
			return b
		}
	}
	return nil
}

// freePriority is the first that nobody has: a filter of the same priority would have to be of the same kind.
func freePriority(all []netlink.Filter) uint16 {
	taken := make(map[uint16]bool)
	for _, f := range all {
		taken[f.Attrs().Priority] = true
	}
	p := uint16(1)
	for taken[p] {
		p++
	}
	return p
}

// ensureClsact gives a device the qdisc to which filters of both directions belong.
func (d *devices) ensureClsact(at netlink.Link) error {
	err := d.nl.QdiscAdd(clsactOf(at.Attrs().Index))
	if err == nil {
		return d.markClsact(at.Attrs().Index)
	}
	if !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact: %w", err)
	}
	all, err := d.nl.QdiscList(at)
	if err != nil {
		return fmt.Errorf("list qdiscs: %w", err)
	}
	for _, q := range all {
		if q.Attrs().Parent == netlink.HANDLE_INGRESS && q.Type() == "ingress" {
			return errors.New("the ingress qdisc of somebody else is there, which has no egress: replace it by clsact")
		}
	}
	return nil
}

func clsactOf(index int) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

// markClsact remembers that the qdisc is ours, so that it may go when our filters go.
func (d *devices) markClsact(index int) error {
	if d.links == "" {
		d.qdiscs[index] = true
		return nil
	}
	if err := os.Mkdir(clsactPin(d.links, index), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("remember clsact: %w", err)
	}
	return nil
}

func clsactPin(links string, index int) string {
	return filepath.Join(links, linkName(clsactMark, index))
}

// forgetClsact reports whether the qdisc was ours.
func (d *devices) forgetClsact(index int) bool {
	if d.links == "" {
		was := d.qdiscs[index]
		delete(d.qdiscs, index)
		return was
	}
	return os.Remove(clsactPin(d.links, index)) == nil
}

func (a *filterAttachment) there(at netlink.Link) (bool, error) {
	all, err := a.d.nl.FilterList(at, a.hook.parent())
	if err != nil {
		return false, fmt.Errorf("list filters at %s: %w", a.hook, err)
	}
	return ourFilter(all, a.d.programs.set, a.hook) != nil, nil
}

// release leaves the filter to the next process, unless nothing is to outlive this one.
func (a *filterAttachment) release() error {
	if a.d.links != "" {
		return nil
	}
	return a.detach()
}

// detach removes the filter. That of a device which is gone went with it.
func (a *filterAttachment) detach() error {
	_, err := removeFilter(a.d.nl, a.index, a.d.programs.set, a.hook)
	if err == nil {
		err = removeClsact(a.d.nl, a.index, a.d.forgetClsact)
	}
	return err
}

// removeFilter removes ours from a hook, if it is there.
func removeFilter(nl *netlink.Handle, index int, set string, h hook) (bool, error) {
	l, err := nl.LinkByIndex(index)
	if err != nil {
		return false, ignoreGone(err)
	}
	all, err := nl.FilterList(l, h.parent())
	if err != nil {
		return false, ignoreGone(fmt.Errorf("list filters at %s: %w", h, err))
	}
	f := ourFilter(all, set, h)
	if f == nil {
		return false, nil
	}
	if err := nl.FilterDel(f); err != nil {
		return false, ignoreGone(fmt.Errorf("remove the filter at %s: %w", h, err))
	}
	return true, nil
}

// removeClsact removes the qdisc if it has no filter left and is ours.
func removeClsact(nl *netlink.Handle, index int, ours func(index int) bool) error {
	l, err := nl.LinkByIndex(index)
	if err != nil {
		_ = ours(index)
		return ignoreGone(err)
	}
	for _, h := range []hook{hookIngress, hookEgress} {
		if left, err := nl.FilterList(l, h.parent()); err != nil || len(left) > 0 {
			return ignoreGone(err)
		}
	}
	if !ours(index) {
		return nil
	}
	if err := nl.QdiscDel(clsactOf(index)); err != nil {
		return ignoreGone(fmt.Errorf("remove clsact: %w", err))
	}
	return nil
}

// ignoreGone is nil for errors about what is gone already.
func ignoreGone(err error) error {
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// removeFilters removes those of one set from every device of the calling thread's namespace, and the qdiscs that are ours.
func removeFilters(set string, qdiscs map[int]bool) (removed []string, err error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	all, err := dump.Whole(nl.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var errs []error
	for _, l := range all {
		for _, h := range []hook{hookIngress, hookEgress} {
			did, err := removeFilter(nl, l.Attrs().Index, set, h)
			if did {
				removed = append(removed, fmt.Sprintf("filter at %s of %s", h, l.Attrs().Name))
			}
			errs = append(errs, err)
		}
		errs = append(errs, removeClsact(nl, l.Attrs().Index, func(index int) bool { return qdiscs[index] }))
	}
	return removed, errors.Join(errs...)
}
