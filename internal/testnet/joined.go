package testnet

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// waitJoined waits until a device listens to the multicast group at which its
// neighbours ask for addr. The kernel joins it from a work queue, duplicate
// address detection or not (addrconf_dad_work); who asks before is answered a
// second later only.
func (h *Host) waitJoined(link netlink.Link, addr netip.Addr) error {
	attrs := link.Attrs()
	if attrs.Flags&net.FlagLoopback != 0 || attrs.OperState != netlink.OperUp {
		return nil // asks nobody, or will do so when it is up
	}
	group := solicitedNode(addr)
	want := hex.EncodeToString(group[:])
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		joined, err := h.joined(attrs.Name, want)
		if err != nil || joined {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wait for %s to join the group of %s", attrs.Name, addr)
		}
	}
}

// joined looks into a list with lines as "2 eth0 ff0200…01 1 00000004 0".
func (h *Host) joined(dev, group string) (found bool, err error) {
	var list []byte
	if outer := inNamespace(h.ns, func() { list, err = os.ReadFile("/proc/thread-self/net/igmp6") }); outer != nil {
		err = outer
	}
	if err != nil {
		return false, fmt.Errorf("list multicast groups: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == dev && f[2] == group {
			return true, nil
		}
	}
	return false, nil
}

// solicitedNode is ff02::1:ffXX:XXXX with the last three bytes of addr (RFC 4291,
// 2.7.1).
func solicitedNode(addr netip.Addr) [16]byte {
	group := [16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff}
	a := addr.As16()
	copy(group[13:], a[13:])
	return group
}
