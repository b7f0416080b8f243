package bpf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/dump"
)

const (
	// resyncEvery is how often devices are looked at without a word from the kernel: it says nothing of a tcx link that
	// somebody has detached.
	resyncEvery = 30 * time.Second
	// settle is the least time from one look to the next: one change of a device makes many events.
	settle = 50 * time.Millisecond
	// retryAfter is when a device that refused is asked again.
	retryAfter = 5 * time.Second
)

// follow keeps the programs on every fit device until the context is done, then leaves everything as it is.
func (d *devices) follow(ctx context.Context) error {
	events, err := d.subscribe()
	if err != nil {
		return err
	}
	wake := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() { done <- events.listen(wake) }()
	defer func() {
		events.Close()
		<-done
	}()
	for {
		if err = d.sync(); errors.Is(err, ErrClosed) {
			return nil
		}
		if !sleep(ctx, settle) {
			return nil
		}
		again := resyncEvery
		if err != nil {
			again = retryAfter
		}
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case failed := <-done:
			timer.Stop()
			done <- failed
			return fmt.Errorf("follow devices: %w", failed)
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// sleep reports false when the context is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// deviceEvents is a socket for events, which is used for nothing else.
type deviceEvents struct {
	socket *nl.NetlinkSocket
	closed atomic.Bool
}

func (d *devices) subscribe() (*deviceEvents, error) {
	groups := []uint{unix.RTNLGRP_LINK}
	if d.clsact {
		groups = append(groups, unix.RTNLGRP_TC)
	}
	e := &deviceEvents{}
	err := d.ns.do(func() (err error) {
		e.socket, err = nl.Subscribe(unix.NETLINK_ROUTE, groups...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to devices: %w", err)
	}
	return e, nil
}

// listen turns events into wakes, until they are closed: what has happened is asked of the kernel anew each time, so that it
// does not matter when some were lost (ENOBUFS).
func (e *deviceEvents) listen(wake chan<- struct{}) error {
	for {
		_, _, err := e.socket.Receive()
		switch {
		case e.closed.Load(): // which has many errors
			return nil
		case err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR):
			return err
		}
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

func (e *deviceEvents) Close() {
	if !e.closed.Swap(true) {
		e.socket.Close()
	}
}

// sync brings every device of the namespace to what is wanted: what is missing is attached, and what sits on devices that
// are gone, or belong to another namespace now, is taken away. One device's refusal does not keep the others.
func (d *devices) sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	return d.ns.do(func() error {
		all, err := dump.Whole(d.nl.LinkList)
		if err != nil {
			return fmt.Errorf("list devices: %w", err)
		}
		var looked error
		if d.programs.look != nil {
			looked = d.programs.look(all)
		}
		return errors.Join(looked, d.syncLocked(all))
	})
}

func (d *devices) syncLocked(all []netlink.Link) error {
	var errs []error
	here := make(map[int]bool, len(all))
	d.unfit = make(map[int]Device)
	for _, l := range all {
		index, name := l.Attrs().Index, l.Attrs().Name
		if why := d.unfitness(l, among(all)); why != "" {
			d.unfit[index] = Device{Index: index, Name: name, Why: why}
			continue
		}
		here[index] = true
		before := d.statusOf(index)
		err := d.attachLocked(l)
		if gone(err) {
			continue // its removal is the next event
		}
		errs = append(errs, err)
		if after := d.statusOf(index); after != before {
			d.tell(after)
		}
	}
	for index, dev := range d.on {
		if !here[index] {
			d.log.Info("a device is gone", "if", dev.status.Name)
			errs = append(errs, d.detachLocked(index))
		}
	}
	return errors.Join(append(errs, d.tidyLinks(here))...)
}

func (d *devices) tell(dev Device) {
	if dev.How == "" {
		d.log.Warn("flows through a device stay in userspace", "if", dev.Name, "err", dev.Why)
		return
	}
	args := []any{"if", dev.Name, "programs", cmp.Or(d.programs.set, "flow"), "how", dev.How}
	if dev.XDP != "" {
		args = append(args, "xdp", dev.XDP)
	}
	d.log.Info("programs are on a device", args...)
}

func (d *devices) statusOf(index int) Device {
	if dev := d.on[index]; dev != nil {
		return dev.status
	}
	return Device{}
}

// gone reports whether the device vanished while it was worked at.
func gone(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.Is(err, unix.ENODEV) || errors.As(err, &notFound)
}

// tidyLinks removes the pins of devices that went while nobody followed.
func (d *devices) tidyLinks(here map[int]bool) error {
	if d.links == "" {
		return nil
	}
	names, err := pinnedNames(d.links)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if _, index, ok := parseLinkName(name); ok && !here[index] {
			_, err := removePinnedLink(filepath.Join(d.links, name))
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
