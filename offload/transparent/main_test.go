package transparent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/offload/bpf"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const port = 8080

// ground is a client, a backend, and a host between them.
type ground struct {
	t                        *testing.T
	client, backend, between *testnet.Host
	clientAt, backendAt      map[bool]netip.Addr // by family, true = IPv6
	it                       *Transparent
}

var kinds = map[string]func(*testing.T) *ground{"router": routed, "bridge": bridged, "pods": pods}

// everyKind runs a test behind a router, behind a bridge and among pods, for both families.
func everyKind(t *testing.T, test func(t *testing.T, g *ground, v6 bool)) {
	for name, build := range kinds {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %s", name, familyName(map[bool]int{false: netlink.FAMILY_V4, true: netlink.FAMILY_V6}[v6])), func(t *testing.T) {
				g := build(t)
				g.open(t)
				test(t, g, v6)
			})
		}
	}
}

func routed(t *testing.T) *ground {
	star := testnet.NewStar(t, 1)
	b := star.Backends[0]
	return &ground{
		t: t, client: star.Client, backend: b, between: star.Balancer,
		clientAt:  map[bool]netip.Addr{false: star.Client.IP4, true: star.Client.IP6},
		backendAt: map[bool]netip.Addr{false: b.IP4, true: b.IP6},
	}
}

// bridged are two hosts in one subnet, joined by a bridge of the third.
func bridged(t *testing.T) *ground {
	n := testnet.New(t)
	g := &ground{t: t, client: n.Host("client"), backend: n.Host("backend"), between: n.Host("between")}
	bridge := n.Bridge(g.between, "br0")
	bridge.Join(g.client)
	bridge.Join(g.backend)
	at := func(last byte) map[bool]netip.Addr {
		v6 := netip.MustParseAddr("fd00:77::").As16()
		v6[15] = last
		return map[bool]netip.Addr{false: netip.AddrFrom4([4]byte{10, 77, 0, last}), true: netip.AddrFrom16(v6)}
	}
	g.clientAt, g.backendAt = at(2), at(3)
	for h, addrs := range map[*testnet.Host]map[bool]netip.Addr{g.client: g.clientAt, g.backend: g.backendAt, g.between: at(1)} {
		dev := "eth0"
		if h == g.between {
			dev = "br0"
		}
		h.AddAddr(dev, netip.PrefixFrom(addrs[false], 24))
		h.AddAddr(dev, netip.PrefixFrom(addrs[true], 64))
	}
	return g
}

// open delivers answers of the backend's two ports.
func (g *ground) open(t *testing.T) {
	t.Helper()
	var err error
	g.between.Do(func() { g.it, err = Open(Options{}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.it.Close(); err != nil {
			t.Error(err)
		}
	})
	var peers []bpf.Peer
	for _, a := range g.backendAt {
		for _, proto := range []flow.Proto{flow.TCP, flow.UDP} {
			peers = append(peers, bpf.Peer{Proto: proto, Address: netip.AddrPortFrom(a, port)})
		}
	}
	if err := g.it.Add(peers); err != nil {
		t.Fatal(err)
	}
}

// dial connects to the backend from the client's address.
func (g *ground) dial(network string, v6 bool, from, to uint16) (net.Conn, error) {
	d := net.Dialer{Timeout: 2 * time.Second, Control: transparent}
	local := netip.AddrPortFrom(g.clientAt[v6], from)
	d.LocalAddr = net.TCPAddrFromAddrPort(local)
	if network == "udp" {
		d.LocalAddr = net.UDPAddrFromAddrPort(local)
	}
	return g.between.DialWith(context.Background(), &d, network, netip.AddrPortFrom(g.backendAt[v6], to))
}

func transparent(network, _ string, c syscall.RawConn) (err error) {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if network[len(network)-1] == '6' {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	outer := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), level, option, 1)
		if err == nil && network[0] == 't' {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		}
	})
	if outer != nil {
		return outer
	}
	return err
}

// connect is dial with patience.
func (g *ground) connect(t *testing.T, v6 bool, from uint16) net.Conn {
	t.Helper()
	c, err := g.dial("tcp", v6, from, port)
	if err != nil {
		t.Fatalf("%v; diverted %+v", err, g.counts(t))
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

func (g *ground) counts(t *testing.T) bpf.DivertCounts {
	t.Helper()
	n, err := g.it.Counts()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// tellPeerUDP answers every datagram with who has sent it, and what.
func (g *ground) tellPeerUDP(t *testing.T, v6 bool) {
	t.Helper()
	g.backend.ServeUDP(netip.AddrPortFrom(g.backendAt[v6], port), testnet.TellPeerUDP)
}
