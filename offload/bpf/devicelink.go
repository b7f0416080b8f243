package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// linkAttachment is a program that sits at a hook by a BPF link. It is kept: a link that the collector closes detaches.
type linkAttachment struct {
	link link.Link
	id   link.ID
	hook hook
	pin  string // "" = not pinned
}

// attachLink adopts the pinned link of a device's hook and gives it our program, without a moment between the two; or it
// makes a link, and pins it if pins are kept.
func (d *devices) attachLink(at netlink.Link, h hook, make func(*ebpf.Program) (link.Link, error)) (*linkAttachment, error) {
	a := &linkAttachment{hook: h}
	if d.links != "" {
		a.pin = filepath.Join(d.links, linkName(h, at.Attrs().Index))
	}
	switch adopted, err := a.adopt(at, d.program(h)); {
	case err != nil:
		return nil, fmt.Errorf("adopt the link at %s: %w", h, err)
	case adopted:
		return a, nil
	}
	l, err := make(d.program(h))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h, err)
	}
	if err := a.take(l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if a.pin == "" {
		return a, nil
	}
	// A crash before this line leaves nothing, one behind it all.
	if err := l.Pin(a.pin); err != nil {
		return nil, errors.Join(fmt.Errorf("pin the link at %s: %w", h, err), l.Close())
	}
	return a, nil
}

func (a *linkAttachment) take(l link.Link) error {
	info, err := l.Info()
	if err != nil {
		return fmt.Errorf("ask for the link at %s: %w", a.hook, err)
	}
	a.link, a.id = l, info.ID
	return nil
}

// adopt reports false when there is no pin of a link that is in force at this device.
func (a *linkAttachment) adopt(at netlink.Link, p *ebpf.Program) (bool, error) {
	if a.pin == "" {
		return false, nil
	}
	l, err := link.LoadPinnedLink(a.pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := a.take(l); err != nil {
		return false, errors.Join(err, l.Close())
	}
	there, err := a.there(at)
	if err != nil {
		return false, errors.Join(err, l.Close())
	}
	if !there { // its device is gone, or lives elsewhere
		return false, a.detach()
	}
	if err := l.Update(p); err != nil {
		return false, errors.Join(err, l.Close())
	}
	return true, nil
}

// there asks the device, not the link: a device that went to another namespace took its programs and its number along.
func (a *linkAttachment) there(at netlink.Link) (bool, error) {
	if a.hook == hookXDP { // there is one, and the device says which
		info, err := a.link.Info()
		if err != nil {
			return false, fmt.Errorf("ask for the link at %s: %w", a.hook, err)
		}
		xdp := at.Attrs().Xdp
		return xdp != nil && xdp.Attached && xdp.ProgId == uint32(info.Program), nil
	}
	found, err := link.QueryPrograms(link.QueryOptions{Target: at.Attrs().Index, Attach: a.hook.attachType()})
	if errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for the programs at %s: %w", a.hook, err)
	}
	for _, p := range found.Programs {
		if id, ok := p.LinkID(); ok && id == a.id {
			return true, nil
		}
	}
	return false, nil
}

func (a *linkAttachment) release() error { return a.link.Close() }

// detach works wherever the device is now.
func (a *linkAttachment) detach() error {
	var errs []error
	if err := a.link.Detach(); err != nil && !errors.Is(err, link.ErrNotSupported) && !errors.Is(err, unix.ENOLINK) {
		errs = append(errs, fmt.Errorf("detach from %s: %w", a.hook, err))
	}
	if a.pin != "" {
		if err := os.Remove(a.pin); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, a.link.Close())...)
}
