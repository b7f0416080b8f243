package bpf

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/baton-lb/baton/internal/flow"
)

// segment is a packet of a flow, as a test writes it down. The zero value is a bare acknowledgement of nothing, or an empty
// datagram.
type segment struct {
	flags    string // of TCP: any of S, F, R, P, U, E, C; N = no ACK, which is there otherwise
	seq, ack uint32
	window   uint16
	options  []byte // of TCP, as on the wire
	payload  int    // bytes of it
	noSum    bool   // UDP without a checksum

	hops      uint8 // 0 = 64
	tos       uint8
	mayCut    bool   // without DF
	ipOptions []byte // as on the wire
	fragment  string // "first", "later"
	pad       int    // bytes behind the packet
}

const etherLen = 14

var (
	farMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	nearMAC = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

// payload is recognisable, and its checksum depends on where it lies.
func payload(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func (g segment) has(flag rune) bool { return slices.Contains([]rune(g.flags), flag) }

// frame is the segment from one address to another.
func (g segment) frame(t testing.TB, proto flow.Proto, from, to netip.AddrPort) []byte {
	t.Helper()
	var upper []gopacket.SerializableLayer
	switch proto {
	case flow.TCP:
		upper = append(upper, &layers.TCP{
			SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()), Seq: g.seq, Ack: g.ack, Window: g.window,
			SYN: g.has('S'), FIN: g.has('F'), RST: g.has('R'), PSH: g.has('P'), URG: g.has('U'), ECE: g.has('E'), CWR: g.has('C'),
			ACK: !g.has('N'),
		})
	case flow.UDP:
		upper = append(upper, &layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())})
	}
	network := g.network(proto, from.Addr(), to.Addr())
	if s, ok := upper[0].(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok {
		if err := s.SetNetworkLayerForChecksum(network.(gopacket.NetworkLayer)); err != nil {
			t.Fatal(err)
		}
	}
	body := gopacket.Payload(payload(g.payload))
	b := serialize(t, append([]gopacket.SerializableLayer{network}, append(upper, body)...)...)
	if proto == flow.TCP && len(g.options) > 0 {
		b = insertTCPOptions(t, b, g.options)
	}
	if proto == flow.UDP && g.noSum {
		binary.BigEndian.PutUint16(b[transportOf(b)+6:], 0)
	}
	return append(g.ether(b), make([]byte, g.pad)...)
}

func (g segment) network(proto flow.Proto, from, to netip.Addr) gopacket.SerializableLayer {
	hops := g.hops
	if hops == 0 {
		hops = 64
	}
	if from.Is6() {
		return &layers.IPv6{
			Version: 6, TrafficClass: g.tos, FlowLabel: 0x12345, NextHeader: layers.IPProtocol(proto), HopLimit: hops,
			SrcIP: from.AsSlice(), DstIP: to.AsSlice(),
		}
	}
	ip := &layers.IPv4{
		Version: 4, TOS: g.tos, Id: 0x4242, TTL: hops, Protocol: layers.IPProtocol(proto), SrcIP: from.AsSlice(), DstIP: to.AsSlice(),
	}
	switch {
	case g.fragment == "first":
		ip.Flags = layers.IPv4MoreFragments
	case g.fragment == "later":
		ip.FragOffset = 100
	case !g.mayCut:
		ip.Flags = layers.IPv4DontFragment
	}
	if len(g.ipOptions) > 0 {
		ip.Options = []layers.IPv4Option{{OptionType: g.ipOptions[0], OptionLength: uint8(len(g.ipOptions)), OptionData: g.ipOptions[2:]}}
	}
	return ip
}

func (g segment) ether(b []byte) []byte {
	kind := layers.EthernetTypeIPv4
	if b[0]>>4 == 6 {
		kind = layers.EthernetTypeIPv6
	}
	frame := slices.Concat(nearMAC, farMAC, binary.BigEndian.AppendUint16(nil, uint16(kind)), b)
	return frame
}

func serialize(t testing.TB, all ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(buffer.Bytes())
}

// transportOf is where the transport header of a packet without extension headers begins.
func transportOf(b []byte) int {
	if b[0]>>4 == 6 {
		return 40
	}
	return int(b[0]&15) * 4
}

// insertTCPOptions puts options as they are behind the TCP header: gopacket would put them in order first.
func insertTCPOptions(t testing.TB, b, options []byte) []byte {
	t.Helper()
	if len(options)%4 != 0 || len(options) > 40 {
		t.Fatalf("%d bytes of options", len(options))
	}
	at := transportOf(b)
	b = slices.Insert(b, at+20, options...)
	b[at+12] = byte((20 + len(options)) / 4 << 4)
	return finish(b)
}

// finish sets the lengths and checksums of a packet to what they must be. It uses no code of the programs.
func finish(b []byte) []byte {
	at := transportOf(b)
	if b[0]>>4 == 6 {
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
	} else {
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		binary.BigEndian.PutUint16(b[10:], 0)
		binary.BigEndian.PutUint16(b[10:], ^sum16(b[:at], 0))
	}
	check, protocol := at+16, wireProtocol(b)
	if protocol == byte(flow.UDP) {
		check = at + 6
		if binary.BigEndian.Uint16(b[check:]) == 0 && b[0]>>4 == 4 {
			return b
		}
	}
	binary.BigEndian.PutUint16(b[check:], 0)
	v := ^sum16(b[at:], sum32(pseudoHeader(b, len(b)-at)))
	if v == 0 && protocol == byte(flow.UDP) {
		v = 0xffff
	}
	binary.BigEndian.PutUint16(b[check:], v)
	return b
}

func wireProtocol(b []byte) byte {
	if b[0]>>4 == 6 {
		return b[6]
	}
	return b[9]
}

func pseudoHeader(b []byte, length int) []byte {
	if b[0]>>4 == 6 {
		p := slices.Clone(b[8:40])
		p = binary.BigEndian.AppendUint32(p, uint32(length))
		return append(p, 0, 0, 0, b[6])
	}
	p := slices.Clone(b[12:20])
	p = append(p, 0, b[9])
	return binary.BigEndian.AppendUint16(p, uint16(length))
}

func sum32(b []byte) (s uint32) {
	for i, v := range b {
		s += uint32(v) << (8 * (1 - i%2))
	}
	return s
}

func sum16(b []byte, s uint32) uint16 {
	s += sum32(b)
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// codec does in Go what the program is to do with a packet: as plainly as can be, from the RFCs.
type codec struct {
	spec FlowSpec
	d    Direction
	r    Rewrite
}

// forward is the packet as it leaves. What makes no sense in options stays as it is, from there on.
func (c codec) forward(frame []byte) []byte {
	b := slices.Clone(frame[etherLen:])
	pad := slices.Clone(b[lengthOf(b):])
	b = b[:lengthOf(b)]
	to := c.spec.element(c.d, 1, 1)
	src, dst := addrPort(to.Source, to.SourcePort), addrPort(to.Destination, to.DestinationPort)
	at := transportOf(b)
	if b[0]>>4 == 6 {
		copy(b[8:], src.Addr().AsSlice())
		copy(b[24:], dst.Addr().AsSlice())
		b[7]--
	} else {
		copy(b[12:], src.Addr().AsSlice())
		copy(b[16:], dst.Addr().AsSlice())
		b[8]--
	}
	binary.BigEndian.PutUint16(b[at:], src.Port())
	binary.BigEndian.PutUint16(b[at+2:], dst.Port())
	if wireProtocol(b) == byte(flow.TCP) {
		c.tcp(b[at:])
	}
	return slices.Concat(frame[:etherLen], finish(b), pad)
}

func lengthOf(b []byte) int {
	if b[0]>>4 == 6 {
		return 40 + int(binary.BigEndian.Uint16(b[4:]))
	}
	return int(binary.BigEndian.Uint16(b[2:]))
}

func (c codec) tcp(b []byte) {
	add := func(at int, n uint32) { binary.BigEndian.PutUint32(b[at:], binary.BigEndian.Uint32(b[at:])+n) }
	add(4, c.r.Seq)
	if b[13]&0x10 != 0 {
		add(8, c.r.Ack)
	}
	if b[13]&2 == 0 {
		binary.BigEndian.PutUint16(b[14:], c.window(binary.BigEndian.Uint16(b[14:])))
	}
	stamps, blocks := 0, []int(nil)
	for at, end := 20, int(b[12]>>4)*4; at < end && b[at] != 0; {
		if b[at] == 1 {
			at++
			continue
		}
		if at+1 >= end || b[at+1] < 2 || at+int(b[at+1]) > end {
			break
		}
		n := int(b[at+1])
		switch {
		case b[at] == 8 && n == 10:
			stamps = at + 2
		case b[at] == 5 && n >= 10 && n%8 == 2:
			blocks = nil
			for e := at + 2; e < at+n; e += 4 {
				blocks = append(blocks, e)
			}
		}
		at += n
	}
	if stamps > 0 {
		add(stamps, c.r.TSval)
		if binary.BigEndian.Uint32(b[stamps+4:]) != 0 {
			add(stamps+4, c.r.TSecr)
		}
	}
	for _, e := range blocks {
		add(e, c.r.Ack)
	}
}

func (c codec) window(w uint16) uint16 {
	v := float64(w)
	for s := c.r.Shift; s > 0; s-- {
		v *= 2
	}
	for s := c.r.Shift; s < 0; s++ {
		v /= 2
	}
	if v > 0 && v < 1 {
		v = 1
	}
	return uint16(min(v, 65535))
}

// icmpError is what the sender of a packet is told: it quotes the packet's headers, without TCP's options.
func icmpError(t testing.TB, frame []byte, kind, code uint8, mtu uint32) []byte {
	t.Helper()
	b := frame[etherLen:]
	at := transportOf(b)
	quoted := gopacket.Payload(b[:at+map[byte]int{6: 20, 17: 8}[wireProtocol(b)]])
	var network, upper gopacket.SerializableLayer
	var rest [4]byte
	binary.BigEndian.PutUint32(rest[:], mtu)
	if b[0]>>4 == 6 {
		ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 64, SrcIP: net.IP(b[24:40]), DstIP: net.IP(b[8:24])}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, code)}
		_ = icmp.SetNetworkLayerForChecksum(ip)
		return segment{}.ether(serialize(t, ip, icmp, gopacket.Payload(rest[:]), quoted))
	}
	network = &layers.IPv4{
		Version: 4, TOS: 0xc0, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: net.IP(b[16:20]), DstIP: net.IP(b[12:16]),
	}
	upper = &layers.ICMPv4{
		TypeCode: layers.CreateICMPv4TypeCode(kind, code),
		Id:       binary.BigEndian.Uint16(rest[:2]), Seq: binary.BigEndian.Uint16(rest[2:]),
	}
	return segment{}.ether(serialize(t, network, upper, quoted))
}
