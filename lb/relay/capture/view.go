package capture

import (
	"errors"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// viewLasts is how long a view is believed, whatever the kernel has said or not.
const viewLasts = time.Minute

// view is what a namespace has, without reading all of it every time: the kernel says when something has changed, and says
// it before the change is done for whoever made it. What Routes changes is noted; whatever else has changed, everything is
// read anew. (It could not be put together from what is said: of IPv4 routes that go with an address or a device nothing is.)
// Routes.mu guards it.
type view struct {
	events *nl.NetlinkSocket // nil = there is none, and nothing is believed
	host   *Host             // nil = to be read
	read   time.Time
}

// watched are the groups of what a Host is made of.
var watched = []uint{
	unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
}

// open begins to listen, if it can.
func (v *view) open(ns *namespace) {
	_ = ns.do(func() (err error) {
		v.events, err = nl.Subscribe(unix.NETLINK_ROUTE, watched...)
		return err
	})
}

func (v *view) close() {
	if v.events != nil {
		v.events.Close()
	}
}

// get gives what the namespace has now, and whether it was read for that.
func (v *view) get(k kernel) (host *Host, anew bool, err error) {
	if v.holds() {
		return v.host, false, nil
	}
	host, err = v.readAnew(k)
	return host, true, err
}

// readAnew reads everything, whatever was said before.
func (v *view) readAnew(k kernel) (host *Host, err error) {
	v.holds() // what was said until now is in what is read
	v.host, v.read = nil, time.Now()
	host, err = readHost(k)
	if err == nil && v.events != nil {
		v.host = host
	}
	return host, err
}

// holds hears what the kernel has said, and reports whether the view is still right.
func (v *view) holds() bool {
	if v.events == nil {
		return false
	}
	if time.Since(v.read) > viewLasts {
		v.host = nil
	}
	buf := make([]byte, 4<<10) // one of a route fits, and what does not is of something else
	for {
		n, _, err := unix.Recvfrom(v.events.GetFd(), buf, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return v.host != nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS):
			v.host = nil // some of it is lost
		case err != nil:
			v.host = nil
			return false
		case v.host != nil && !v.host.agrees(buf[:n]):
			v.host = nil
		}
	}
}

// agrees reports whether all that the kernel says is about routes of ours, and known.
func (h *Host) agrees(said []byte) bool {
	messages, err := syscall.ParseNetlinkMessage(said)
	if err != nil {
		return false
	}
	for _, m := range messages {
		vip, hint, ok := ourRoute(m)
		if !ok {
			return false
		}
		if now, there := h.ours[vip]; there != (m.Header.Type == unix.RTM_NEWROUTE) || there && now != hint {
			return false
		}
	}
	return true
}

// ourRoute reads which route of ours a message is about.
func ourRoute(m syscall.NetlinkMessage) (vip, hint netip.Addr, ok bool) {
	const table, protocol, kind = 4, 5, 7 // where they are in a struct rtmsg
	if m.Header.Type != unix.RTM_NEWROUTE && m.Header.Type != unix.RTM_DELROUTE || len(m.Data) < unix.SizeofRtMsg ||
		m.Data[protocol] != byte(RouteProtocol) || m.Data[table] != unix.RT_TABLE_LOCAL || m.Data[kind] != unix.RTN_LOCAL {
		return vip, hint, false
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(&m)
	if err != nil {
		return vip, hint, false
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.RTA_DST:
			vip, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_PREFSRC:
			hint, _ = netip.AddrFromSlice(a.Value)
		}
	}
	return vip, hint, vip.IsValid()
}

// Host gives what the namespace has now, from what is known where that is still right. It is good until the routes are
// changed next.
func (r *Routes) Host() (*Host, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	host, _, err := r.view.get(r.kernel)
	return host, err
}
