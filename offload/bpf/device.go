package bpf

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// devicePrograms are what sits on each device.
type devicePrograms struct {
	Ingress *ebpf.Program
	Egress  *ebpf.Program // nil = none
	XDP     *ebpf.Program // nil = none; only where the driver itself has XDP

	set   string                                                     // tells these programs from others of ours
	unfit func(netlink.Link, func(int) (netlink.Link, error)) string // why a device is to have none; nil = unfit
	look  func([]netlink.Link) error                                 // is shown all devices in each round; nil = nobody is
}

// devices keeps programs on the devices of one network namespace: by tcx links, or before Linux 6.6 by filters of the
// clsact qdisc. It removes nothing that others have put there.
type devices struct {
	// Immutable.
	log      *slog.Logger
	programs devicePrograms
	links    string // directory in which links are pinned; "" = nothing outlives the process
	ns       *netNS
	nl       *netlink.Handle
	clsact   bool     // there is no tcx
	xdp      bool     // asked for
	ports    xdpPorts // told of devices with XDP; nil = nobody is

	// mu guards what follows, and is held over the system calls of one operation.
	mu     sync.Mutex
	on     map[int]*device // by index
	qdiscs map[int]bool    // on which clsact is ours; not used where that is pinned
	unfit  map[int]Device  // as last seen
	closed bool
}

// device is what we have on one device.
type device struct {
	status Device
	at     [hooks]attachment // nil = nothing
	told   bool              // xdpPorts knows port: the address, or "" for no XDP
	port   string
}

// attachment is a program at one hook of a device.
type attachment interface {
	// there reports whether it is still in force there.
	there(netlink.Link) (bool, error)
	// release lets go: what is pinned lives on.
	release() error
	// detach ends it. It may have ended by itself.
	detach() error
}

// newDevices is for the network namespace of the calling thread.
func newDevices(p devicePrograms, links string, xdp bool, log *slog.Logger) (_ *devices, err error) {
	d := &devices{
		log: log, programs: p, links: links, xdp: xdp && p.XDP != nil, on: make(map[int]*device), qdiscs: make(map[int]bool),
		clsact: errors.Is(featureTCX.Have(), ErrNotSupported),
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.ns, err = currentNetNS(); err != nil {
		return nil, err
	}
	if d.nl, err = netlink.NewHandle(); err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink: %w", err), d.ns.Close())
	}
	return d, nil
}

// attach puts the programs on one device, in the place of an earlier version of them if there is one. It does nothing
// where they are already.
func (d *devices) attach(index int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	return d.ns.do(func() error {
		l, err := d.nl.LinkByIndex(index)
		if err != nil {
			return fmt.Errorf("find device %d: %w", index, err)
		}
		if why := d.unfitness(l, d.nl.LinkByIndex); why != "" {
			return fmt.Errorf("attach to %s: %s", l.Attrs().Name, why)
		}
		return d.attachLocked(l)
	})
}

// attachTo is attach for a device that is known to be fit.
func (d *devices) attachTo(l netlink.Link) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ns.do(func() error { return d.attachLocked(l) })
}

// unfitness says why a device is to have no programs, or "".
func (d *devices) unfitness(l netlink.Link, byIndex func(int) (netlink.Link, error)) string {
	if d.programs.unfit != nil {
		return d.programs.unfit(l, byIndex)
	}
	return unfit(l, byIndex)
}

// attachLocked is idempotent: what is missing at a device is put there.
func (d *devices) attachLocked(l netlink.Link) error {
	index := l.Attrs().Index
	dev := d.on[index]
	if dev == nil {
		dev = &device{}
		d.on[index] = dev
	}
	dev.status.Index, dev.status.Name = index, l.Attrs().Name
	err := d.verify(dev, l)
	for _, h := range []hook{hookIngress, hookEgress} {
		if err == nil && dev.at[h] == nil && d.program(h) != nil {
			dev.at[h], err = d.attachTC(l, h)
		}
	}
	if err != nil { // both or none
		err = errors.Join(fmt.Errorf("attach to %s: %w", l.Attrs().Name, err), dev.detach())
		dev.status.How, dev.status.Why = "", err.Error()
		return err
	}
	dev.status.How, dev.status.Why = d.how(), ""
	if d.xdp && dev.at[hookXDP] == nil {
		dev.at[hookXDP], dev.status.XDP = d.attachXDP(l)
	}
	return d.tellPort(l, dev)
}

func (d *devices) attachTC(l netlink.Link, h hook) (attachment, error) {
	if d.clsact {
		a, err := d.attachFilter(l, h)
		if err != nil {
			return nil, err
		}
		return a, nil
	}
	a, err := d.attachLink(l, h, func(p *ebpf.Program) (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: p, Attach: h.attachType(), Anchor: link.Head()})
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (d *devices) how() string {
	if d.clsact {
		return "clsact"
	}
	return "tcx"
}

// verify forgets what others have taken away.
func (d *devices) verify(dev *device, l netlink.Link) error {
	for h, a := range dev.at {
		if a == nil {
			continue
		}
		ok, err := a.there(l)
		if err != nil {
			return err
		}
		if !ok {
			d.log.Warn("a program was taken off a device by somebody else: putting it back", "if", l.Attrs().Name, "hook", hook(h).String())
			_ = a.detach() // of it the pin may be left
			dev.at[h] = nil
		}
	}
	return nil
}

// detach takes the programs off one device. It does nothing where there are none.
func (d *devices) detach(index int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ns.do(func() error { return d.detachLocked(index) })
}

func (d *devices) detachLocked(index int) error {
	dev := d.on[index]
	if dev == nil {
		return nil
	}
	delete(d.on, index)
	var err error
	if dev.told && dev.port != "" {
		err = d.ports.ForbidXDP(index)
	}
	if err = errors.Join(err, dev.detach()); err != nil {
		return fmt.Errorf("detach from %s: %w", dev.status.Name, err)
	}
	return nil
}

// detach leaves nothing at the device.
func (dev *device) detach() error {
	var errs []error
	for h, a := range dev.at {
		if a != nil {
			errs = append(errs, a.detach())
			dev.at[h] = nil
		}
	}
	return errors.Join(errs...)
}

// Close lets go of every device: what is pinned stays in force, the rest ends.
func (d *devices) Close() error {
	return d.close(func(dev *device) (errs []error) {
		for _, a := range dev.at {
			if a != nil {
				errs = append(errs, a.release())
			}
		}
		return errs
	})
}

// remove takes the programs off every device, and lets go.
func (d *devices) remove() error {
	return d.close(func(dev *device) []error { return []error{dev.detach()} })
}

func (d *devices) close(each func(*device) []error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	err := d.ns.do(func() error {
		var errs []error
		for _, dev := range d.on {
			errs = append(errs, each(dev)...)
		}
		return errors.Join(errs...)
	})
	d.nl.Close()
	return errors.Join(err, d.ns.Close())
}
