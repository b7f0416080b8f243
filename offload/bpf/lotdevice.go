package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/sysctl"
)

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel lot c/lot.bpf.c -- -mcpu=v3 -nostdinc -Wall -Wextra -Werror

const (
	tunPath = "/dev/net/tun"

	// lotPrefix begins the names of parking lots; the kernel finds a number that is free.
	lotPrefix = "baton-lot"

	// lotQueue is how many frames wait in the kernel until the process reads them.
	lotQueue = 4096
)

// Offloads of a TAP (linux/if_tun.h): frames come and go unsegmented, with checksums to be filled in.
const (
	tunCsum   = 0x01
	tunTSO4   = 0x02
	tunTSO6   = 0x04
	tunTSOECN = 0x08
)

// openTAP makes a TAP that lasts as long as its descriptor, in the calling thread's network namespace.
func openTAP() (fd int, name string, err error) {
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
	request, err := unix.NewIfreq(lotPrefix + "%d")
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

// hide makes a lot nothing but a place for frames: no addresses, no neighbours, no routes; then it is set up.
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
	if err := nl.LinkSetTxQLen(l, lotQueue); err != nil {
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
