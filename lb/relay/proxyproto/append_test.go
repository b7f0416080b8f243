package proxyproto

import (
	"net/netip"
	"testing"
)

func TestAppend(t *testing.T) {
	tests := []struct {
		name      string
		version   Version
		transport Transport
		src, dst  string
		want      string
	}{
		{"v1 IPv4", V1, Stream, "192.0.2.1:56324", "198.51.100.1:443", "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n"},
		{"v1 IPv6", V1, Stream, "[2001:db8::1]:1", "[2001:db8::2]:2", "PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n"},
		{"v1 mapped", V1, Stream, "[::ffff:192.0.2.1]:1", "198.51.100.1:2", "PROXY TCP4 192.0.2.1 198.51.100.1 1 2\r\n"},
		{"v1 mixed", V1, Stream, "[2001:db8::1]:1", "198.51.100.1:2", "PROXY TCP6 2001:db8::1 ::ffff:c633:6401 1 2\r\n"},
		{"v1 mixed, zeros", V1, Stream, "0.0.0.0:1", "[::1]:2", "PROXY TCP6 ::ffff:0:0 ::1 1 2\r\n"},
		{"v1 zone", V1, Stream, "[fe80::1%eth0]:1", "[fe80::2]:2", "PROXY TCP6 fe80::1 fe80::2 1 2\r\n"},
		{"v1 datagram", V1, Datagram, "192.0.2.1:1", "198.51.100.1:2", "PROXY UNKNOWN\r\n"},
		{"v1 no source", V1, Stream, "", "198.51.100.1:2", "PROXY UNKNOWN\r\n"},
		{"v2 IPv4", V2, Stream, "192.0.2.1:56324", "198.51.100.1:443", v2(cmdProxy, famTCP4, pay4)},
		{"v2 IPv4 datagram", V2, Datagram, "192.0.2.1:56324", "198.51.100.1:443", v2(cmdProxy, famUDP4, pay4)},
		{"v2 IPv6", V2, Stream, "[2001:db8::1]:56324", "[2001:db8::2]:443", v2(cmdProxy, famTCP6, pay6)},
		{"v2 IPv6 datagram", V2, Datagram, "[2001:db8::1]:56324", "[2001:db8::2]:443", v2(cmdProxy, famUDP6, pay6)},
		{"v2 mixed", V2, Stream, "192.0.2.1:56324", "[2001:db8::2]:443", v2(cmdProxy, famTCP6,
			"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x01"+pay6[16:])},
		{"v2 unspecified", V2, Unspecified, "192.0.2.1:1", "198.51.100.1:2", v2(cmdLocal, famUnspec, "")},
		{"v2 no destination", V2, Stream, "192.0.2.1:1", "", v2(cmdLocal, famUnspec, "")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := string(Append([]byte("before"), tt.version, tt.transport, ap(tt.src), ap(tt.dst)))
			if got != "before"+tt.want {
				t.Fatalf("got %q, want %q", got[6:], tt.want)
			}
			if len(tt.want) > MaxAppend {
				t.Fatalf("%d bytes are more than MaxAppend", len(tt.want))
			}
		})
	}
}

func TestAllocations(t *testing.T) {
	src, dst := ap("[2001:db8::1]:56324"), ap("[2001:db8::2]:443")
	mixed := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), 1)
	buf := make([]byte, 0, MaxAppend)
	bad := []byte("PROXY TCP4 1.2.3.256")
	withCRC := appendCRC(Append(nil, V2, Stream, src, dst))
	for name, f := range map[string]func(){
		"v1":       func() { buf = Append(buf[:0], V1, Stream, src, dst); Parse(buf) },
		"v1 mixed": func() { buf = Append(buf[:0], V1, Stream, mixed, dst); Parse(buf) },
		"v2":       func() { buf = Append(buf[:0], V2, Datagram, src, dst); Parse(buf) },
		"crc":      func() { Parse(withCRC) },
		"refused":  func() { Parse(bad) },
		"stack":    func() { var b [MaxAppend]byte; Parse(Append(b[:0], V2, Datagram, src, dst)) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	src, dst := ap("[2001:db8::1]:56324"), ap("[2001:db8::2]:443")
	for _, v := range []Version{V1, V2} {
		b.Run(v.String(), func(b *testing.B) {
			buf := make([]byte, 0, MaxAppend)
			b.ReportAllocs()
			for b.Loop() {
				buf = Append(buf[:0], v, Stream, src, dst)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	src, dst := ap("[2001:db8::1]:56324"), ap("[2001:db8::2]:443")
	run := func(name string, in []byte) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Parse(in)
			}
		})
	}
	run("v1", Append(nil, V1, Stream, src, dst))
	run("v2", Append(nil, V2, Stream, src, dst))
	run("v2 crc", appendCRC(Append(nil, V2, Stream, src, dst)))
	run("refused", []byte("GET / HTTP/1.1\r\n"))
}
