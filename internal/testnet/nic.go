package testnet

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nicFeatures are what a device does in place of the CPU, in the order in which
// they can be switched off: segmentation needs scatter-gather and checksums.
var nicFeatures = []struct {
	name string
	set  uint32 // the ethtool command
}{
	{"TCP segmentation", unix.ETHTOOL_STSO},
	{"generic segmentation", unix.ETHTOOL_SGSO},
	{"generic receive offload", unix.ETHTOOL_SGRO},
	{"scatter-gather", unix.ETHTOOL_SSG},
	{"transmit checksums", unix.ETHTOOL_STXCSUM},
}

// NoOffloads makes a port send packets as they are on a wire: no larger than its
// MTU, with whole checksums; and takes them as they come. It holds for what leaves
// this end: a link that is plain both ways has both its ports so.
func (p Port) NoOffloads() {
	p.Host.t.Helper()
	var inner error
	p.Host.Do(func() { inner = noOffloads(p.Dev) })
	if inner != nil {
		p.Host.t.Fatalf("host %s: %v", p.Host.name, inner)
	}
}

func noOffloads(dev string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket for ethtool: %w", err)
	}
	defer unix.Close(fd)
	for _, f := range nicFeatures {
		if err := ethtool(fd, dev, f.set, 0); err != nil {
			return fmt.Errorf("switch off %s of %s: %w", f.name, dev, err)
		}
	}
	return nil
}

// ethtool gives a device one value (struct ethtool_value by struct ifreq, see
// netdevice(7)).
func ethtool(fd int, dev string, command, value uint32) error {
	v := struct{ command, value uint32 }{command, value}
	var ifr struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [24 - unsafe.Sizeof(uintptr(0))]byte
	}
	if len(dev) >= len(ifr.name) {
		return unix.EINVAL
	}
	copy(ifr.name[:], dev)
	ifr.data = unsafe.Pointer(&v)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
	runtime.KeepAlive(&v)
	if errno != 0 {
		return errno
	}
	return nil
}
