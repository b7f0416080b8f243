package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/sysctl"
)

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel lot c/lot.bpf.c -- -mcpu=v3 -nostdinc -Wall -Wextra -Werror

const (
	tunPath = "/dev/net/tun"

	// What names of such devices begin with; the kernel finds a number that is free.
	lotPrefix  = "baton-lot"
	deskPrefix = "baton-desk"

	// tapQueue is how many frames wait in the kernel until the process reads them.
	tapQueue = 4096
)

// Offloads of a TAP (linux/if_tun.h): frames come and go unsegmented, with checksums to be filled in.
const (
	tunCsum   = 0x01
	tunTSO4   = 0x02
	tunTSO6   = 0x04
	tunTSOECN = 0x08
)

// tap is a device that frames go to from any other, and come back to that from: see c/lot.bpf.c.
type tap struct {
	file    *os.File
	raw     syscall.RawConn
	objects lotObjects
	devices *devices
	index   int
	name    string
	buffer  []byte // for one frame
}

// openTap makes one in the calling thread's network namespace. close it also when it has failed.
func openTap(prefix string, log *slog.Logger, clsact bool) (*tap, error) {
	t := &tap{buffer: make([]byte, vnetHeader+ethernetHeader+vlanTag+1<<16)}
	if err := loadLotObjects(&t.objects, nil); err != nil {
		return t, explain(err, nil)
	}
	var err error
	if t.devices, err = newDevices(devicePrograms{Ingress: t.objects.LotIngress, Egress: t.objects.LotEgress}, "", false, log); err != nil {
		return t, err
	}
	t.devices.clsact = t.devices.clsact || clsact
	return t, t.openDevice(prefix)
}

func (t *tap) openDevice(prefix string) error {
	fd, name, err := openTAP(prefix)
	if err != nil {
		return err
	}
	t.file, t.name = os.NewFile(uintptr(fd), name), name
	if t.raw, err = t.file.SyscallConn(); err != nil {
		return err
	}
	dev, err := hide(t.devices.nl, name)
	if err != nil {
		return err
	}
	t.index = dev.Attrs().Index
	return t.devices.attachTo(dev)
}

// drain calls f for every frame that has arrived: it is only valid during the call.
func (t *tap) drain(fd int, f func(frame []byte)) (n int) {
	for {
		size, err := unix.Read(fd, t.buffer)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || size <= 0:
			return n
		}
		n++
		f(t.buffer[:size])
	}
}

// hangUp ends reading from it, and takes the device away.
func (t *tap) hangUp() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}

// close is for when nobody reads from it any more.
func (t *tap) close() error {
	var errs []error
	if t.devices != nil {
		errs = append(errs, t.devices.Close())
	}
	if t.objects.LotIngress != nil {
		errs = append(errs, t.objects.Close())
	}
	return errors.Join(errs...)
}

// openTAP makes a TAP that lasts as long as its descriptor, in the calling thread's network namespace.
func openTAP(prefix string) (fd int, name string, err error) {
	fd, err = unix.Open(tunPath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return -1, "", fmt.Errorf("%s (Linux %s, and %s): %w", featureTUN.Name, featureTUN.Since, tunPath, ErrNotSupported)
	case err != nil:
		return -1, "", fmt.Errorf("open %s: %w", tunPath, err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	request, err := unix.NewIfreq(prefix + "%d")
	if err != nil {
		return -1, "", err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); errors.Is(err, unix.EPERM) {
		return -1, "", fmt.Errorf("make a TAP: %w: needs CAP_NET_ADMIN", ErrPermission)
	} else if err != nil {
		return -1, "", fmt.Errorf("make a TAP: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tunCsum|tunTSO4|tunTSO6|tunTSOECN); err != nil {
		return -1, "", fmt.Errorf("set the TAP's offloads: %w", err)
	}
	// Only now: before TUNSETIFF the descriptor cannot be polled.
	if err := unix.SetNonblock(fd, true); err != nil {
		return -1, "", err
	}
	return fd, request.Name(), nil
}

// hide makes a TAP nothing but a place for frames: no addresses, no neighbours, no routes; then it is set up.
func hide(nl *netlink.Handle, name string) (netlink.Link, error) {
	l, err := nl.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", name, err)
	}
	if err := nl.LinkSetARPOff(l); err != nil {
		return nil, fmt.Errorf("set arp off: %w", err)
	}
	if err := disableIPv6(name); err != nil {
		return nil, err
	}
	if err := nl.LinkSetTxQLen(l, tapQueue); err != nil {
		return nil, fmt.Errorf("set the queue's length: %w", err)
	}
	// The queue is the TAP's own; a qdisc before it would only delay and reorder. It may be missing in a small kernel.
	_ = nl.QdiscReplace(&netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_ROOT}, QdiscType: "noqueue",
	})
	if err := nl.LinkSetUp(l); err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	return nl.LinkByName(name)
}

func disableIPv6(name string) error {
	err := os.WriteFile(sysctl.Path("net/ipv6/conf/"+name+"/disable_ipv6"), []byte("1"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // there is no IPv6
		return fmt.Errorf("switch IPv6 off: %w", err)
	}
	return nil
}
