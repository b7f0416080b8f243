package conntrack

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// ground is a host that tracks connections.
type ground struct {
	t    *testing.T
	conn *Conn
	nl   *netlink.Handle
}

func newGround(t *testing.T) *ground {
	t.Helper()
	h := testnet.New(t).Host("tracking")
	g := &ground{t: t}
	var err error
	h.Do(func() {
		if g.conn, err = Open(); err == nil {
			g.nl, err = netlink.NewHandle(unix.NETLINK_NETFILTER)
		}
	})
	if errors.Is(err, ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.nl.Close()
		if err := g.conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// track has an entry of an established connection made.
func (g *ground) track(t Tuple) {
	g.t.Helper()
	family := netlink.InetFamily(t.family())
	src, dst := net.IP(t.Source.Addr().AsSlice()), net.IP(t.Destination.Addr().AsSlice())
	e := &netlink.ConntrackFlow{
		FamilyType: t.family(), TimeOut: 300,
		Forward: netlink.IPTuple{SrcIP: src, DstIP: dst, SrcPort: t.Source.Port(), DstPort: t.Destination.Port(), Protocol: uint8(t.Proto)},
		Reverse: netlink.IPTuple{SrcIP: dst, DstIP: src, SrcPort: t.Destination.Port(), DstPort: t.Source.Port(), Protocol: uint8(t.Proto)},
	}
	if t.Proto == flow.TCP {
		e.ProtoInfo = &netlink.ProtoInfoTCP{State: nlEstablished}
	}
	if err := g.nl.ConntrackCreate(netlink.ConntrackTable, family, e); err != nil {
		g.t.Fatalf("track %v: %v", t, err)
	}
}

const nlEstablished = 3 // TCP_CONNTRACK_ESTABLISHED

func (g *ground) entries() (n int) {
	g.t.Helper()
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		list, err := g.nl.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			g.t.Fatal(err)
		}
		n += len(list)
	}
	return n
}

// Exactly the entry that was asked for goes, whichever of its directions was named.
func TestDelete(t *testing.T) {
	g := newGround(t)
	if g.conn.InUse() {
		t.Error("in use before anything is tracked")
	}
	addrPort := netip.MustParseAddrPort
	tuples := []Tuple{
		{flow.TCP, addrPort("10.202.0.2:40000"), addrPort("10.96.0.10:80")},
		{flow.UDP, addrPort("10.202.0.2:40000"), addrPort("10.96.0.10:80")},
		{flow.TCP, addrPort("10.202.0.2:40001"), addrPort("10.96.0.10:80")},
		{flow.TCP, addrPort("[fd00::2]:40000"), addrPort("[fd96::10]:80")},
	}
	for _, e := range tuples {
		g.track(e)
	}
	if n := g.entries(); n != len(tuples) || !g.conn.InUse() {
		t.Fatalf("%d entries, in use: %v", n, g.conn.InUse())
	}
	absent := tuples[0]
	absent.Source = addrPort("10.202.0.2:40009")
	back := tuples[3]
	back.Source, back.Destination = back.Destination, back.Source
	for _, tt := range []struct {
		delete Tuple
		left   int
	}{{absent, 4}, {tuples[0], 3}, {tuples[0], 3}, {back, 2}, {tuples[1], 1}} {
		if err := g.conn.Delete(tt.delete); err != nil {
			t.Errorf("%v: %v", tt.delete, err)
		}
		if n := g.entries(); n != tt.left {
			t.Errorf("after %v: %d entries, want %d", tt.delete, n, tt.left)
		}
	}
}
