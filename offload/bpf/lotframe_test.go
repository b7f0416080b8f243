package bpf

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
)

// parkedPacket is what the lot reads: headers alone.
func parkedPacket(k lotKey, vlan bool) []byte {
	b := make([]byte, vnetHeader+ethernetHeader-2)
	kind := func(v uint16) { b = binary.BigEndian.AppendUint16(b, v) }
	if vlan {
		kind(0x8100)
		kind(100)
	}
	if k.from.Addr().Is4() {
		kind(0x0800)
		ip := make([]byte, ipv4Header)
		ip[0], ip[9] = 0x45, byte(k.proto)
		copy(ip[12:], k.from.Addr().AsSlice())
		copy(ip[16:], k.to.Addr().AsSlice())
		b = append(b, ip...)
	} else {
		kind(0x86dd)
		ip := make([]byte, ipv6Header)
		ip[0], ip[6] = 0x60, byte(k.proto)
		copy(ip[8:], k.from.Addr().AsSlice())
		copy(ip[24:], k.to.Addr().AsSlice())
		b = append(b, ip...)
	}
	b = binary.BigEndian.AppendUint16(b, k.from.Port())
	return binary.BigEndian.AppendUint16(b, k.to.Port())
}

func key(proto flow.Proto, from, to string) lotKey {
	return newLotKey(proto, netip.MustParseAddrPort(from), netip.MustParseAddrPort(to))
}

func TestFrameKey(t *testing.T) {
	four := key(flow.TCP, "10.0.0.2:4000", "10.96.0.10:80")
	six := key(flow.UDP, "[fd00::2]:4000", "[fd96::10]:53")
	change := func(b []byte, at int, v byte) []byte { b[vnetHeader+ethernetHeader+at] = v; return b }
	for _, tc := range []struct {
		name  string
		frame []byte
		want  lotKey
		ok    bool
	}{
		{"IPv4", parkedPacket(four, false), four, true},
		{"IPv6", parkedPacket(six, false), six, true},
		{"IPv4 in a VLAN", parkedPacket(four, true), four, true},
		{"IPv6 in a VLAN", parkedPacket(six, true), six, true},
		{"don't fragment", change(parkedPacket(four, false), 6, 0x40), four, true},
		{"first fragment", change(parkedPacket(four, false), 6, 0x20), lotKey{}, false},
		{"later fragment", change(parkedPacket(four, false), 7, 1), lotKey{}, false},
		{"ICMP", change(parkedPacket(four, false), 9, 1), lotKey{}, false},
		{"IPv6 with an extension header", change(parkedPacket(six, false), 6, 0), lotKey{}, false},
		{"IPv4-mapped source", mappedSource(parkedPacket(six, false)), lotKey{}, false},
		{"header length below the least", change(parkedPacket(four, false), 0, 0x44), lotKey{}, false},
		{"IPv4 options beyond the end", change(parkedPacket(four, false), 0, 0x4f), lotKey{}, false},
		{"wrong version", change(parkedPacket(four, false), 0, 0x65), lotKey{}, false},
		{"nothing", nil, lotKey{}, false},
		{"Ethernet alone", parkedPacket(four, false)[:vnetHeader+ethernetHeader], lotKey{}, false},
		{"cut in the ports", parkedPacket(six, false)[:vnetHeader+ethernetHeader+ipv6Header+3], lotKey{}, false},
	} {
		if got, ok := frameKey(tc.frame); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %v, %t", tc.name, got, ok)
		}
	}
	if mapped := key(flow.TCP, "[::ffff:10.0.0.2]:4000", "[::ffff:10.96.0.10]:80"); mapped != four {
		t.Errorf("an address of IPv4 in IPv6's dress: %v", mapped)
	}
}

// mappedSource gives a packet of IPv6 the source ::ffff:10.0.0.2.
func mappedSource(frame []byte) []byte {
	mapped := netip.MustParseAddr("::ffff:10.0.0.2").As16()
	copy(frame[vnetHeader+ethernetHeader+8:], mapped[:])
	return frame
}

// FuzzFrameKey: what is found can be built again, and is found in that too.
func FuzzFrameKey(f *testing.F) {
	f.Add(parkedPacket(key(flow.TCP, "10.0.0.2:4000", "10.96.0.10:80"), false))
	f.Add(parkedPacket(key(flow.UDP, "[fd00::2]:4000", "[fd96::10]:53"), true))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, ok := frameKey(b)
		if !ok {
			if k != (lotKey{}) {
				t.Errorf("refused, and yet %v", k)
			}
			return
		}
		if again, ok := frameKey(parkedPacket(k, false)); !ok || again != newLotKey(k.proto, k.from, k.to) {
			t.Errorf("%v became %v, %t", k, again, ok)
		}
	})
}
