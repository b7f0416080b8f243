package testnet

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Capture keeps those packets of a port that say how connections begin and end: TCP
// segments with SYN, FIN or RST, and every ICMP message but those of neighbour
// discovery. So few are not lost behind a load. It ends with the test.
type Capture struct {
	port Port
	fd   int

	// Used by the test's goroutine alone.
	frames  []Frame
	dropped uint32
}

// Frame is an Ethernet frame, whole.
type Frame struct {
	Out  bool // the port sent it
	Data []byte
}

// captureBuffer is for what arrives between two calls of Frames.
const captureBuffer = 64 << 20

// Capture begins to keep packets of the port.
func (p Port) Capture() *Capture {
	p.Host.t.Helper()
	c := &Capture{port: p}
	var err error
	p.Host.Do(func() { c.fd, err = openCapture(p.Dev) })
	if err != nil {
		p.Host.t.Fatalf("host %s: capture at %s: %v", p.Host.name, p.Dev, err)
	}
	p.Host.t.Cleanup(func() { unix.Close(c.fd) })
	return c
}

// Frames returns what was captured so far. It fails the test when the kernel had to
// throw away some of it.
func (c *Capture) Frames() []Frame {
	t := c.port.Host.t
	t.Helper()
	buf := make([]byte, 64<<10)
	for {
		n, from, err := unix.Recvfrom(c.fd, buf, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			break
		}
		if err == unix.EINTR || err == unix.ENETDOWN {
			continue
		}
		if err != nil {
			t.Fatalf("host %s: read captured packets: %v", c.port.Host.name, os.NewSyscallError("recvfrom", err))
		}
		f := Frame{Data: append([]byte(nil), buf[:n]...)}
		if a, ok := from.(*unix.SockaddrLinklayer); ok {
			f.Out = a.Pkttype == unix.PACKET_OUTGOING
		}
		c.frames = append(c.frames, f)
	}
	stats, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		t.Fatalf("host %s: count captured packets: %v", c.port.Host.name, err)
	}
	if c.dropped += stats.Drops; c.dropped > 0 {
		t.Fatalf("host %s: %d packets found no room in the capture", c.port.Host.name, c.dropped)
	}
	return c.frames
}

// Settled is Frames after nothing new was captured for as long as quiet.
func (c *Capture) Settled(quiet time.Duration) []Frame {
	c.port.Host.t.Helper()
	for seen := -1; ; {
		frames := c.Frames()
		if len(frames) == seen {
			return frames
		}
		seen = len(frames)
		time.Sleep(quiet)
	}
}

func openCapture(dev string) (fd int, err error) {
	// Protocol 0 takes nothing in before the filter is there.
	if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, fmt.Errorf("open a packet socket: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer); err != nil {
		return -1, fmt.Errorf("set its receive buffer: %w", err)
	}
	filter := captureFilter()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		return -1, fmt.Errorf("attach its filter: %w", err)
	}
	link, err := interfaceIndex(fd, dev)
	if err != nil {
		return -1, err
	}
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link}); err != nil {
		return -1, fmt.Errorf("bind it to %s: %w", dev, err)
	}
	return fd, nil
}

func interfaceIndex(fd int, dev string) (int, error) {
	ifr, err := unix.NewIfreq(dev)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr)
	}
	if err != nil {
		return 0, fmt.Errorf("find %s: %w", dev, err)
	}
	return int(ifr.Uint32()), nil
}
