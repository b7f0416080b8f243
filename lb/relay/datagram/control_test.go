package datagram

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func appendAll(parts ...func([]byte) []byte) []byte {
	b := make([]byte, 0, 4*controlSize)
	for _, p := range parts {
		b = p(b)
	}
	return b
}

func gro(size uint32) func([]byte) []byte {
	return func(b []byte) []byte {
		return appendControl(b, unix.SOL_UDP, unix.UDP_GRO, binary.NativeEndian.AppendUint32(nil, size))
	}
}

func source(s string) func([]byte) []byte {
	return func(b []byte) []byte { return appendSource(b, netip.MustParseAddr(s)) }
}

func other(data string) func([]byte) []byte {
	return func(b []byte) []byte { return appendControl(b, unix.SOL_SOCKET, unix.SCM_TIMESTAMP, []byte(data)) }
}

func TestParseControl(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, tc := range []struct {
		name    string
		control []byte
		segment int
		local   netip.Addr
	}{
		{"nothing", nil, 0, netip.Addr{}},
		{"segment", appendAll(gro(100)), 100, netip.Addr{}},
		{"as long as the data", appendAll(gro(1000)), 0, netip.Addr{}},
		{"zero", appendAll(gro(0)), 0, netip.Addr{}},
		{"negative", appendAll(gro(0xffffff00)), 0, netip.Addr{}},
		{"IPv4", appendAll(source("192.0.2.1")), 0, v4},
		{"IPv6", appendAll(source("2001:db8::1")), 0, v6},
		{"mapped", appendAll(func(b []byte) []byte {
			a := v4.As16()
			return appendControl(b, unix.SOL_IPV6, unix.IPV6_PKTINFO, append(a[:], 0, 0, 0, 0))
		}), 0, v4},
		{"all, and what is not known", appendAll(other("x"), gro(7), other(""), source("2001:db8::1")), 7, v6},
		{"cut off", appendAll(gro(7), source("2001:db8::1"))[:40], 7, netip.Addr{}},
		{"too short", appendAll(func(b []byte) []byte { return appendControl(b, unix.SOL_UDP, unix.UDP_GRO, []byte{1, 2, 3}) }), 0, netip.Addr{}},
		{"length zero", make([]byte, 64), 0, netip.Addr{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := Message{Data: make([]byte, 1000)}
			m.parseControl(tc.control)
			if m.Segment != tc.segment || m.Local != tc.local {
				t.Errorf("segments of %d to %s, want %d to %s", m.Segment, m.Local, tc.segment, tc.local)
			}
		})
	}
}

// FuzzControl reads anything, and finds in what was written what was written.
func FuzzControl(f *testing.F) {
	f.Add([]byte(nil), uint32(0), []byte{})
	f.Add(appendAll(gro(100), source("192.0.2.1")), uint32(5), []byte("abc"))
	f.Add(appendAll(other("abcdef"), source("2001:db8::1"), gro(1)), uint32(1<<31), []byte("0123456789abcdef"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0}, uint32(1), []byte{1})
	f.Fuzz(func(t *testing.T, raw []byte, size uint32, data []byte) {
		m := Message{Data: make([]byte, 1000)}
		m.parseControl(raw)
		if m.Segment < 0 || m.Segment >= len(m.Data) {
			t.Fatalf("segments of %d in %d bytes", m.Segment, len(m.Data))
		}
		if n := m.Count(); n < 1 || n > len(m.Data) {
			t.Fatalf("%d datagrams in %d bytes", n, len(m.Data))
		}
		var failure Failure
		total := 0
		for c, rest, ok := cutControl(raw); ok; c, rest, ok = cutControl(rest) {
			failure.parseControl(&c)
			if total += len(c.data); total > len(raw) {
				t.Fatal("more than there was")
			}
		}
		data = data[:min(len(data), 64)]
		written := appendAll(func(b []byte) []byte { return appendControl(b, 77, 78, data) }, gro(size))
		c, rest, ok := cutControl(written)
		if !ok || c.level != 77 || c.kind != 78 || !bytes.Equal(c.data, data) {
			t.Fatalf("%+v, %v; want %q", c, ok, data)
		}
		if c, rest, ok = cutControl(rest); !ok || !c.is(unix.SOL_UDP, unix.UDP_GRO, 4) || binary.NativeEndian.Uint32(c.data) != size || len(rest) != 0 {
			t.Fatalf("%+v, %d left, %v; want %d", c, len(rest), ok, size)
		}
	})
}
