package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

// ErrNotSupported says that this kernel tracks no connections.
var ErrNotSupported = errors.New("connection tracking is not supported by this kernel")

// Tuple is one direction of a tracked connection, as its packets show it.
type Tuple struct {
	Proto               flow.Proto
	Source, Destination netip.AddrPort // of one family
}

// Conn is a connection to the kernel's connection tracking, in the network namespace
// of whoever opened it. It may be used by several goroutines at once.
type Conn struct {
	sockets map[int]*nl.SocketHandle
	count   *os.File // how many entries there are
}

const countPath = "/proc/sys/net/netfilter/nf_conntrack_count"

// Open opens the calling thread's network namespace. It wraps ErrNotSupported where
// nothing is tracked; asking must not be what loads it.
func Open() (*Conn, error) {
	count, err := os.Open(countPath)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no %s", ErrNotSupported, countPath)
	}
	if err != nil {
		return nil, fmt.Errorf("open count of tracked connections: %w", err)
	}
	s, err := nl.GetNetlinkSocketAt(-1, -1, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open netfilter netlink: %w", err), count.Close())
	}
	return &Conn{sockets: map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: s}}, count: count}, nil
}

// InUse reports whether any connection is tracked.
func (c *Conn) InUse() bool {
	var b [16]byte
	n, err := c.count.ReadAt(b[:], 0)
	return n == 0 && err != nil || strings.TrimSpace(string(b[:n])) != "0"
}

// Close closes the connection.
func (c *Conn) Close() error {
	for _, s := range c.sockets {
		s.Close()
	}
	return c.count.Close()
}

// Delete removes the entry that has a tuple as one of its directions. Its absence is
// no error.
func (c *Conn) Delete(t Tuple) error {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
	r.Sockets = c.sockets
	r.AddData(&nl.Nfgenmsg{NfgenFamily: t.family(), Version: nl.NFNETLINK_V0})
	r.AddData(t.attribute())
	_, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete tracked connection %s to %s: %w", t.Source, t.Destination, err)
	}
	return nil
}

func (t Tuple) family() uint8 {
	if t.Source.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// attribute is CTA_TUPLE_ORIG: the kernel looks for it among both directions.
func (t Tuple) attribute() *nl.RtAttr {
	source, destination := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if t.Source.Addr().Is6() {
		source, destination = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	tuple := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, nil)
	ip := tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil)
	ip.AddRtAttr(source, t.Source.Addr().AsSlice())
	ip.AddRtAttr(destination, t.Destination.Addr().AsSlice())
	proto := tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	proto.AddRtAttr(nl.CTA_PROTO_NUM, []byte{uint8(t.Proto)})
	proto.AddRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(t.Source.Port()))
	proto.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(t.Destination.Port()))
	return tuple
}
