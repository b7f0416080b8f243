package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

const divertTestMark = 0x40

// Who speaks in these tests: backends that are peers, hosts that are not, and clients that sockets of ours stand for.
var (
	diverted4 = netip.MustParseAddrPort("192.0.2.9:40000")
	diverted6 = netip.MustParseAddrPort("[2001:db8::9]:40000")
	elsewhere = netip.MustParseAddr("198.51.100.1")
)

// divertGround is a host with sockets that speak to backends from addresses that are not the host's.
type divertGround struct {
	host               *testnet.Host
	divert             *Divert
	port               int // a device that is a bridge's
	backend4, backend6 netip.AddrPort
}

func newDivertGround(t *testing.T) *divertGround {
	t.Helper()
	n := testnet.New(t)
	g := &divertGround{host: n.Host("host")}
	l := n.Connect(g.host, n.Host("neighbour"))
	// Nobody is there, so connections to it stay in SYN_SENT.
	g.backend4 = netip.AddrPortFrom(l.Net4.Addr().Next().Next().Next(), 8080)
	g.backend6 = netip.AddrPortFrom(l.Net6.Addr().Next().Next().Next(), 8080)
	g.port = g.addPort(t)
	var err error
	g.host.Do(func() { g.divert, err = OpenDivert(DivertOptions{Mark: divertTestMark, Peers: 16}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.divert.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := g.divert.Sync(); err != nil {
		t.Fatal(err)
	}
	var peers []Peer
	for _, a := range []netip.AddrPort{g.backend4, g.backend6} {
		peers = append(peers, Peer{flow.TCP, a}, Peer{flow.UDP, a})
		g.connect(t, unix.SOCK_STREAM, clientOf(a), a)
		g.connect(t, unix.SOCK_DGRAM, clientOf(a), a)
	}
	if err := g.divert.AddPeers(peers); err != nil {
		t.Fatal(err)
	}
	return g
}

func clientOf(backend netip.AddrPort) netip.AddrPort {
	if backend.Addr().Is4() {
		return diverted4
	}
	return diverted6
}

var bridgeAddress = []byte{2, 0, 0, 0, 0, 0x42}

// addPort makes a bridge with one port.
func (g *divertGround) addPort(t *testing.T) int {
	t.Helper()
	nl := g.host.Netlink()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = "br0", bridgeAddress
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	attrs = netlink.NewLinkAttrs()
	attrs.Name = "port0"
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "port0peer"}
	for _, l := range []netlink.Link{bridge, veth} {
		if err := nl.LinkAdd(l); err != nil {
			t.Fatal(err)
		}
		if err := nl.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := nl.LinkSetMaster(veth, bridge); err != nil {
		t.Fatal(err)
	}
	return veth.Index
}

// connect makes a socket that speaks for somebody else.
func (g *divertGround) connect(t *testing.T, typ int, from, to netip.AddrPort) {
	t.Helper()
	domain, level, option := unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	if to.Addr().Is4() {
		domain, level, option = unix.AF_INET, unix.SOL_IP, unix.IP_TRANSPARENT
	}
	g.host.Do(func() {
		fd, err := unix.Socket(domain, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { unix.Close(fd) })
		err = errors.Join(unix.SetsockoptInt(fd, level, option, 1), unix.Bind(fd, sockaddr(from)))
		if e := unix.Connect(fd, sockaddr(to)); e != unix.EINPROGRESS {
			err = errors.Join(err, e)
		}
		if err != nil {
			t.Errorf("connect %s to %s: %v", from, to, err)
		}
	})
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// run shows the program a packet that comes by a device, and returns the mark and the frame afterwards.
func (g *divertGround) run(t *testing.T, device int, ip []byte) (mark uint32, frame []byte) {
	t.Helper()
	const markAt, deviceAt = 8, 40 // in struct __sk_buff
	kind := []byte{0x08, 0x00}
	if ip[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	in := append(append(bytes.Repeat([]byte{6}, 12), kind...), ip...)
	ctx, out := make([]byte, 192), make([]byte, 256)
	binary.NativeEndian.PutUint32(ctx[deviceAt:], uint32(device))
	frame = make([]byte, len(in)+256)
	o := ebpf.RunOptions{Data: in, DataOut: frame, Context: ctx, ContextOut: out}
	var (
		verdict uint32
		err     error
	)
	g.host.Do(func() { verdict, err = g.divert.objects.Divert.Run(&o) })
	if err != nil {
		t.Fatal(err)
	}
	if int32(verdict) != -1 {
		t.Errorf("verdict %d", int32(verdict))
	}
	return binary.NativeEndian.Uint32(out[markAt:]), o.DataOut
}

// The packets of the tests are built from the inside out.

func ports(from, to uint16, more ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, from)
	return append(append(binary.BigEndian.AppendUint16(b, to), make([]byte, 16)...), more...)
}

type ipv4 struct {
	proto    flow.Proto
	options  int // bytes
	fragment uint16
	id       uint16
}

func (o ipv4) packet(from, to netip.Addr, payload []byte) []byte {
	b := make([]byte, 20+o.options)
	b[0], b[8], b[9] = byte(0x40|len(b)/4), 64, byte(o.proto)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(payload)))
	binary.BigEndian.PutUint16(b[4:], o.id)
	binary.BigEndian.PutUint16(b[6:], o.fragment)
	copy(b[12:], from.AsSlice())
	copy(b[16:], to.AsSlice())
	return append(b, payload...)
}

// extension is an IPv6 extension header, the next header to be filled in.
type extension struct {
	kind byte
	rest []byte // without its first byte
}

func ipv6(from, to netip.Addr, proto flow.Proto, payload []byte, extensions ...extension) []byte {
	b := make([]byte, 40)
	b[0], b[7], b[6] = 0x60, 64, byte(proto)
	copy(b[8:], from.AsSlice())
	copy(b[24:], to.AsSlice())
	next := 6
	for _, e := range extensions {
		b[next] = e.kind
		next = len(b)
		b = append(append(b, byte(proto)), e.rest...)
	}
	b = append(b, payload...)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
	return b
}

func options6(kind byte, eights int) extension {
	rest := make([]byte, 8*eights-1)
	rest[0] = byte(eights - 1)
	return extension{kind, rest}
}

func fragment6(offset, more uint16, id uint32) extension {
	rest := binary.BigEndian.AppendUint16([]byte{0}, offset<<3|more)
	return extension{44, binary.BigEndian.AppendUint32(rest, id)}
}

func icmp(typ, code byte, quoted []byte) []byte {
	return append([]byte{typ, code, 0, 0, 0, 0, 0, 0}, quoted...)
}

func TestDivertProgram(t *testing.T) {
	g := newDivertGround(t)
	b4, b6, c4, c6 := g.backend4.Addr(), g.backend6.Addr(), diverted4.Addr(), diverted6.Addr()
	b, c := g.backend4.Port(), diverted4.Port()
	tcp4, udp4 := ipv4{proto: flow.TCP}, ipv4{proto: flow.UDP}
	const icmp4, icmp6 = flow.Proto(1), flow.Proto(58)
	// Listeners and sockets that take what comes from anybody are at a port of everybody's too.
	g.host.Serve(c+1, testnet.Hold)
	if pc, err := g.host.ListenPacket("udp", netip.AddrPortFrom(netip.Addr{}, c+1)); err != nil {
		t.Fatal(err)
	} else {
		t.Cleanup(func() { pc.Close() })
	}
	none, packet, failure, later := DivertCounts{}, DivertCounts{Packets: 1}, DivertCounts{Errors: 1}, DivertCounts{Fragments: 1}
	for _, tt := range []struct {
		name   string
		packet []byte
		want   DivertCounts
	}{
		{"TCP", tcp4.packet(b4, c4, ports(b, c)), packet},
		{"TCP, IPv6", ipv6(b6, c6, flow.TCP, ports(b, c)), packet},
		{"UDP", udp4.packet(b4, c4, ports(b, c)), packet},
		{"UDP, IPv6", ipv6(b6, c6, flow.UDP, ports(b, c)), packet},
		{"IP options", ipv4{proto: flow.TCP, options: 8}.packet(b4, c4, ports(b, c)), packet},
		{"extension headers", ipv6(b6, c6, flow.TCP, ports(b, c), options6(0, 1), options6(60, 2), options6(43, 3)), packet},
		{"the client's other port, where somebody listens", tcp4.packet(b4, c4, ports(b, c+1)), none},
		{"a listener is no connection", tcp4.packet(b4, elsewhere, ports(b, c+1)), none},
		{"nor is a socket for everybody", udp4.packet(b4, c4, ports(b, c+1)), none},
		{"another client", tcp4.packet(b4, elsewhere, ports(b, c)), none},
		{"another backend's port", tcp4.packet(b4, c4, ports(b+1, c)), none},
		{"no backend", udp4.packet(elsewhere, c4, ports(b, c)), none},
		{"the way out", tcp4.packet(c4, b4, ports(c, b)), none},
		{"the way out, IPv6", ipv6(c6, b6, flow.UDP, ports(c, b)), none},
		{"another protocol", ipv4{proto: flow.SCTP}.packet(b4, c4, ports(b, c)), none},
		{"ping", ipv4{proto: icmp4}.packet(b4, c4, icmp(8, 0, tcp4.packet(c4, b4, ports(c, b)))), none},
		{"ping, IPv6", ipv6(b6, c6, icmp6, icmp(128, 0, ipv6(c6, b6, flow.TCP, ports(c, b)))), none},
		{"port unreachable", ipv4{proto: icmp4}.packet(b4, c4, icmp(3, 3, udp4.packet(c4, b4, ports(c, b)))), failure},
		{"too big, of a router", ipv4{proto: icmp4}.packet(elsewhere, c4, icmp(3, 4, tcp4.packet(c4, b4, ports(c, b)))), failure},
		{"time exceeded, with options", ipv4{proto: icmp4, options: 4}.packet(elsewhere, c4,
			icmp(11, 0, ipv4{proto: flow.TCP, options: 12}.packet(c4, b4, ports(c, b)))), failure},
		{"an error with little of what it is about", ipv4{proto: icmp4}.packet(b4, c4, icmp(3, 3, udp4.packet(c4, b4, ports(c, b))[:28])), failure},
		{"an error with too little", ipv4{proto: icmp4}.packet(b4, c4, icmp(3, 3, udp4.packet(c4, b4, ports(c, b))[:23])), none},
		{"an error about something else", ipv4{proto: icmp4}.packet(b4, c4, icmp(3, 3, udp4.packet(c4, elsewhere, ports(c, b)))), none},
		{"redirect", ipv4{proto: icmp4}.packet(b4, c4, icmp(5, 1, udp4.packet(c4, b4, ports(c, b)))), none},
		{"too big, IPv6", ipv6(b6, c6, icmp6, icmp(2, 0, ipv6(c6, b6, flow.TCP, ports(c, b)))), failure},
		{"unreachable, of a fragment, IPv6", ipv6(b6, c6, icmp6, icmp(1, 4, ipv6(c6, b6, flow.UDP, ports(c, b), fragment6(0, 1, 9)))), failure},
		{"a neighbour asks", ipv6(b6, c6, icmp6, icmp(135, 0, c6.AsSlice())), none},
		{"first fragment", ipv4{proto: flow.UDP, id: 7, fragment: 0x2000}.packet(b4, c4, ports(b, c)), packet},
		{"later fragment", ipv4{proto: flow.UDP, id: 7, fragment: 0x2002}.packet(b4, c4, ports(1, 2)), later},
		{"last fragment", ipv4{proto: flow.UDP, id: 7, fragment: 4}.packet(b4, c4, nil), later},
		{"fragment of another packet", ipv4{proto: flow.UDP, id: 8, fragment: 2}.packet(b4, c4, ports(b, c)), none},
		{"fragment of another protocol", ipv4{proto: flow.TCP, id: 7, fragment: 2}.packet(b4, c4, ports(b, c)), none},
		{"do not fragment", ipv4{proto: flow.UDP, fragment: 0x4000}.packet(b4, c4, ports(b, c)), packet},
		{"first fragment, IPv6", ipv6(b6, c6, flow.UDP, ports(b, c), options6(0, 1), fragment6(0, 1, 7)), packet},
		{"last fragment, IPv6", ipv6(b6, c6, flow.UDP, []byte{1}, fragment6(2, 0, 7)), later},
		{"fragment of another packet, IPv6", ipv6(b6, c6, flow.UDP, ports(b, c), fragment6(2, 0, 8)), none},
		{"cut before the ports", tcp4.packet(b4, c4, []byte{1, 2, 3}), none},
		{"cut extension header", ipv6(b6, c6, flow.TCP, nil, extension{60, []byte{9}}), none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for device, frames := range map[int]uint64{0: 0, g.port: 1} {
				before := g.counts(t)
				mark, frame := g.run(t, device, tt.packet)
				got, want := g.counts(t).minus(before), tt.want
				marked := want != none
				if marked {
					want.Frames = frames
				}
				if got != want || (mark == divertTestMark) != marked {
					t.Errorf("mark %#x, counted %+v, want %+v", mark, got, want)
				}
				to := bytes.Repeat([]byte{6}, 6)
				if want.Frames > 0 {
					to = bridgeAddress
				}
				if !bytes.Equal(frame[:6], to) || !bytes.Equal(frame[14:], tt.packet) {
					t.Errorf("the frame is to %x now, want %x; or it has changed", frame[:6], to)
				}
			}
		})
	}
}

func (g *divertGround) counts(t *testing.T) DivertCounts {
	t.Helper()
	c, err := g.divert.Counts()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c DivertCounts) minus(d DivertCounts) DivertCounts {
	return DivertCounts{c.Packets - d.Packets, c.Errors - d.Errors, c.Fragments - d.Fragments, c.Frames - d.Frames}
}

// The table of peers grows under the program, which goes on knowing those that it had.
func TestDivertPeersGrow(t *testing.T) {
	g := newDivertGround(t)
	before, err := entries[divertPeer](g.divert.peers)
	if err != nil {
		t.Fatal(err)
	}
	var many []Peer
	for i := range 1000 {
		many = append(many, Peer{flow.TCP, netip.AddrPortFrom(elsewhere, uint16(i+1))})
	}
	room := g.divert.peers.MaxEntries()
	for _, some := range [][]Peer{many[:12], many[:13], many, many} {
		if err := g.divert.AddPeers(some); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := entries[divertPeer](g.divert.peers); n != before+len(many) || err != nil || g.divert.peers.MaxEntries() <= room {
		t.Errorf("%d peers, %v; want %d", n, err, before+len(many))
	}
	var held ebpf.MapID
	if err := g.divert.objects.DivertPeers.Lookup(uint32(0), &held); err != nil {
		t.Fatal(err)
	}
	if info, err := g.divert.peers.Info(); err != nil {
		t.Error(err)
	} else if id, _ := info.ID(); id != held {
		t.Errorf("the program looks in map %d, and %d is filled", held, id)
	}
	if err := g.divert.RemovePeers(append(many, many...)); err != nil {
		t.Error(err)
	}
	if n, err := entries[divertPeer](g.divert.peers); n != before || err != nil {
		t.Errorf("%d peers are left, %v; want %d", n, err, before)
	}
	for range 2 {
		if err := g.divert.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := g.divert.AddPeers(many); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// BenchmarkDivert is what the packets of others pay.
func BenchmarkDivert(b *testing.B) {
	testnet.RequireRoot(b)
	const repeat = 10_000
	d, err := OpenDivert(DivertOptions{Mark: divertTestMark})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	frame := append(make([]byte, 12), 8, 0)
	frame = append(frame, ipv4{proto: flow.TCP}.packet(elsewhere, elsewhere, ports(1, 2))...)
	for b.Loop() {
		if _, err := d.objects.Divert.Run(&ebpf.RunOptions{Data: frame, Repeat: repeat}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/repeat, "ns/packet")
}
