package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bulkSize is how many routes go into one request. The kernel answers for those that fail only, so that even if all of them
// do its answers fit the socket's queue.
const bulkSize = 128

// bulkWait bounds the wait for one answer of the kernel, which gives it before the request returns.
const bulkWait = 10 * time.Second

// A bulk makes or removes many routes of ours with few system calls: one by one, 30,000 take the better part of a second.
type bulk struct {
	ns       *namespace
	loopback int
}

// do adds the routes, or removes them, and reports of each whether that is certain to have worked. Whatever has not is for
// the caller to try alone, and to learn why.
func (b *bulk) do(kind uint16, routes []change) (done []bool, err error) {
	fd, err := b.open()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	done = make([]bool, 0, len(routes))
	for len(routes) > 0 {
		n := min(bulkSize, len(routes))
		failed, err := b.request(fd, kind, routes[:n])
		if err != nil {
			return done, err
		}
		for i := range n {
			done = append(done, !failed[uint32(i)])
		}
		routes = routes[n:]
	}
	return done, nil
}

func (b *bulk) open() (fd int, err error) {
	err = b.ns.do(func() error {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("open rtnetlink: %w", err)
	}
	wait := unix.NsecToTimeval(bulkWait.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return -1, errors.Join(fmt.Errorf("open rtnetlink: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// request sends one request for all and collects which of them failed. Only the last asks for an answer in any case: it comes
// after all others.
func (b *bulk) request(fd int, kind uint16, routes []change) (failed map[uint32]bool, err error) {
	var msg []byte
	for i, c := range routes {
		flags := uint16(unix.NLM_F_REQUEST)
		if kind == unix.RTM_NEWROUTE {
			flags |= unix.NLM_F_CREATE | unix.NLM_F_EXCL
		}
		if i == len(routes)-1 {
			flags |= unix.NLM_F_ACK
		}
		msg = b.append(msg, kind, flags, uint32(i), c)
	}
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("change routes: %w", err)
	}
	failed = make(map[uint32]bool)
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("change routes: %w", err)
		}
		answers, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return nil, fmt.Errorf("change routes: %w", err)
		}
		for _, a := range answers {
			if a.Header.Type != unix.NLMSG_ERROR || len(a.Data) < 4 {
				continue
			}
			if binary.NativeEndian.Uint32(a.Data) != 0 {
				failed[a.Header.Seq] = true
			}
			if a.Header.Seq == uint32(len(routes)-1) {
				return failed, nil
			}
		}
	}
}

// append adds the message for one route, as Routes.route describes it.
func (b *bulk) append(msg []byte, kind, flags uint16, seq uint32, c change) []byte {
	start := len(msg)
	msg = append(msg, make([]byte, unix.SizeofNlMsghdr)...)
	family := unix.AF_INET6
	if c.vip.Is4() {
		family = unix.AF_INET
	}
	msg = append(msg, byte(family), byte(c.vip.BitLen()), 0, 0,
		unix.RT_TABLE_LOCAL, byte(RouteProtocol), unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0)
	msg = appendAttr(msg, unix.RTA_DST, c.vip.AsSlice())
	if c.hint.IsValid() {
		msg = appendAttr(msg, unix.RTA_PREFSRC, c.hint.AsSlice())
	}
	msg = appendAttr(msg, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(b.loopback)))
	msg = appendAttr(msg, unix.RTA_PRIORITY, binary.NativeEndian.AppendUint32(nil, RouteMetric))
	head := msg[start:]
	binary.NativeEndian.PutUint32(head[0:], uint32(len(head)))
	binary.NativeEndian.PutUint16(head[4:], kind)
	binary.NativeEndian.PutUint16(head[6:], flags)
	binary.NativeEndian.PutUint32(head[8:], seq)
	return msg
}

// appendAttr adds an attribute whose size needs no padding.
func appendAttr(msg []byte, kind uint16, value []byte) []byte {
	msg = binary.NativeEndian.AppendUint16(msg, uint16(unix.SizeofRtAttr+len(value)))
	msg = binary.NativeEndian.AppendUint16(msg, kind)
	return append(msg, value...)
}

// add makes those of the new routes that it can, and returns what is left to try one by one. When that cannot be said of some,
// they are to be replaced, which is right in either case.
func (b *bulk) add(changes []change, added func(change)) (rest []change) {
	var news []change
	for _, c := range changes {
		if c.replace {
			rest = append(rest, c)
			continue
		}
		news = append(news, c)
	}
	done, err := b.do(unix.RTM_NEWROUTE, news)
	for i, c := range news {
		switch {
		case i < len(done) && done[i]:
			added(c)
		default:
			c.again = err != nil
			rest = append(rest, c)
		}
	}
	return rest
}

// remove takes away those of the routes that it can, and returns the rest.
func (b *bulk) remove(vips []netip.Addr) (done, rest []netip.Addr) {
	routes := make([]change, len(vips))
	for i, vip := range vips {
		routes[i].vip = vip
	}
	gone, _ := b.do(unix.RTM_DELROUTE, routes)
	for i, vip := range vips {
		if i < len(gone) && gone[i] {
			done = append(done, vip)
			continue
		}
		rest = append(rest, vip)
	}
	return done, rest
}
