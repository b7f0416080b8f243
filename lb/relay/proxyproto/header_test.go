package proxyproto

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func ap(s string) netip.AddrPort {
	if s == "" {
		return netip.AddrPort{}
	}
	return netip.MustParseAddrPort(s)
}

func v2(cmd, family byte, payload string) string {
	return signatureV2 + string([]byte{cmd, family, byte(len(payload) >> 8), byte(len(payload))}) + payload
}

const (
	pay4 = "\xc0\x00\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb"
	pay6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\xdc\x04\x01\xbb"
)

var parseTests = []struct {
	name string
	in   string
	want Header // Version 0: the header is not good
	err  error
}{
	{name: "empty", err: ErrIncomplete},
	{name: "http", in: "GET / HTTP/1.1\r\n", err: errSignature},
	{name: "one wrong byte", in: "G", err: errSignature},
	{name: "post is not proxy", in: "PO", err: errSignature},
	{name: "lower case", in: "proxy TCP4", err: errSignature},

	{name: "v1 TCP4", in: "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n",
		want: Header{Version: V1, Transport: Stream, Source: ap("192.0.2.1:56324"), Destination: ap("198.51.100.1:443")}},
	{name: "v1 TCP4 longest", in: "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
		want: Header{Version: V1, Transport: Stream, Source: ap("255.255.255.255:65535"), Destination: ap("255.255.255.255:65535")}},
	{name: "v1 TCP6", in: "PROXY TCP6 2001:db8::1 2001:DB8::2 0 443\r\n",
		want: Header{Version: V1, Transport: Stream, Source: ap("[2001:db8::1]:0"), Destination: ap("[2001:db8::2]:443")}},
	{name: "v1 TCP6 longest", in: "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
		want: Header{Version: V1, Transport: Stream,
			Source:      ap("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"),
			Destination: ap("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535")}},
	{name: "v1 TCP6 mapped as inet_ntop prints it", in: "PROXY TCP6 ::ffff:192.0.2.1 ::FFFF:c633:6401 1 2\r\n",
		want: Header{Version: V1, Transport: Stream, Source: ap("192.0.2.1:1"), Destination: ap("198.51.100.1:2")}},
	{name: "v1 followed by data", in: "PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\nGET /",
		want: Header{Version: V1, Transport: Stream, Source: ap("1.2.3.4:9"), Destination: ap("5.6.7.8:10")}},
	{name: "v1 UNKNOWN short", in: "PROXY UNKNOWN\r\n", want: Header{Version: V1, Local: true}},
	{name: "v1 UNKNOWN long", in: "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
		want: Header{Version: V1, Local: true}},
	{name: "v1 UNKNOWN beyond 107", in: "PROXY UNKNOWN " + strings.Repeat("x", 92) + "\r\n", err: errLine},
	{name: "v1 UNKNOWN without end at 106", in: "PROXY UNKNOWN " + strings.Repeat("x", 92), err: errLine},
	{name: "v1 UNKNOWN glued", in: "PROXY UNKNOWNX", err: errProtocol},
	{name: "v1 UNKNOWN CR alone", in: "PROXY UNKNOWN\rx", err: errLine},
	{name: "v1 UDP4", in: "PROXY UDP4 1.2.3.4 5.6.7.8 9 10\r\n", err: errProtocol},
	{name: "v1 TCP5", in: "PROXY TCP5", err: errProtocol},
	{name: "v1 two spaces", in: "PROXY  TCP4", err: errProtocol},
	{name: "v1 two spaces later", in: "PROXY TCP4 1.2.3.4  5.6.7.8 9 10\r\n", err: errAddress4},
	{name: "v1 leading zero in address", in: "PROXY TCP4 1.2.3.04", err: errAddress4},
	{name: "v1 three numbers", in: "PROXY TCP4 1.2.3 ", err: errAddress4},
	{name: "v1 five numbers", in: "PROXY TCP4 1.2.3.4.", err: errAddress4},
	{name: "v1 256", in: "PROXY TCP4 1.2.3.256", err: errAddress4},
	{name: "v1 v6 in TCP4", in: "PROXY TCP4 ::1", err: errAddress4},
	{name: "v1 v4 in TCP6", in: "PROXY TCP6 1.", err: errAddress6},
	{name: "v1 zone", in: "PROXY TCP6 fe80::1%", err: errAddress6},
	{name: "v1 two gaps", in: "PROXY TCP6 1::2::", err: errAddress6},
	{name: "v1 three colons", in: "PROXY TCP6 1:::", err: errAddress6},
	{name: "v1 leading colon", in: "PROXY TCP6 :1", err: errAddress6},
	{name: "v1 nine groups", in: "PROXY TCP6 1:2:3:4:5:6:7:8:", err: errAddress6},
	{name: "v1 gap for nothing", in: "PROXY TCP6 1:2:3:4::5:6:7:8", err: errAddress6},
	{name: "v1 five digits", in: "PROXY TCP6 12345", err: errAddress6},
	{name: "v1 dotted but not mapped", in: "PROXY TCP6 ::1.", err: errAddress6},
	{name: "v1 mapped, bad tail", in: "PROXY TCP6 ::ffff:1.2.3.256", err: errAddress6},
	{name: "v1 port too big", in: "PROXY TCP4 1.2.3.4 5.6.7.8 65536", err: errPort},
	{name: "v1 port with zero", in: "PROXY TCP4 1.2.3.4 5.6.7.8 09", err: errPort},
	{name: "v1 port with sign", in: "PROXY TCP4 1.2.3.4 5.6.7.8 +", err: errPort},
	{name: "v1 no port", in: "PROXY TCP4 1.2.3.4 5.6.7.8 \r", err: errPort},
	{name: "v1 more fields", in: "PROXY TCP4 1.2.3.4 5.6.7.8 9 10 ", err: errPort},
	{name: "v1 LF alone", in: "PROXY TCP4 1.2.3.4 5.6.7.8 9 10\n", err: errPort},
	{name: "v1 CR alone", in: "PROXY TCP4 1.2.3.4 5.6.7.8 9 10\rx", err: errLine},

	{name: "v2 TCP4", in: v2(cmdProxy, famTCP4, pay4),
		want: Header{Version: V2, Transport: Stream, Source: ap("192.0.2.1:56324"), Destination: ap("198.51.100.1:443")}},
	{name: "v2 UDP4", in: v2(cmdProxy, famUDP4, pay4) + "payload",
		want: Header{Version: V2, Transport: Datagram, Source: ap("192.0.2.1:56324"), Destination: ap("198.51.100.1:443")}},
	{name: "v2 TCP6", in: v2(cmdProxy, famTCP6, pay6),
		want: Header{Version: V2, Transport: Stream, Source: ap("[2001:db8::1]:56324"), Destination: ap("[2001:db8::2]:443")}},
	{name: "v2 UDP6", in: v2(cmdProxy, famUDP6, pay6),
		want: Header{Version: V2, Transport: Datagram, Source: ap("[2001:db8::1]:56324"), Destination: ap("[2001:db8::2]:443")}},
	{name: "v2 LOCAL", in: v2(cmdLocal, famUnspec, ""), want: Header{Version: V2, Local: true}},
	{name: "v2 LOCAL with a block", in: v2(cmdLocal, famTCP4, "anything"), want: Header{Version: V2, Local: true}},
	{name: "v2 LOCAL with a family unheard of", in: v2(cmdLocal, 0xff, "x"), want: Header{Version: V2, Local: true}},
	{name: "v2 UNSPEC", in: v2(cmdProxy, famUnspec, "xx"), want: Header{Version: V2, Local: true}},
	{name: "v2 UNIX", in: v2(cmdProxy, famUnix, strings.Repeat("\x00", v2Unix)), want: Header{Version: V2, Local: true}},
	{name: "v2 TLVs", in: v2(cmdProxy, famTCP4, pay4+"\x01\x00\x02h2"+"\x04\x00\x00"+"\xe0\x00\x01x"),
		want: Header{Version: V2, Transport: Stream, Source: ap("192.0.2.1:56324"), Destination: ap("198.51.100.1:443")}},
	{name: "v2 wrong signature", in: "\r\n\r\n\x00\r\nQUITX", err: errSignature},
	{name: "v2 blank line of a text protocol", in: "\r\nG", err: errSignature},
	{name: "v2 version 3", in: signatureV2 + "\x31", err: errCommand},
	{name: "v2 command 2", in: signatureV2 + "\x22", err: errCommand},
	{name: "v2 family 4", in: signatureV2 + "\x21\x41", err: errFamily},
	{name: "v2 transport 3", in: signatureV2 + "\x21\x13", err: errFamily},
	{name: "v2 unspecified transport", in: signatureV2 + "\x21\x10", err: errFamily},
	{name: "v2 too short for IPv4", in: v2(cmdProxy, famTCP4, pay4[:11]), err: errLength},
	{name: "v2 too short for IPv6", in: v2(cmdProxy, famTCP6, pay6[:35]), err: errLength},
	{name: "v2 too short for UNIX", in: v2(cmdProxy, famUnix, strings.Repeat("x", 215)), err: errLength},
	{name: "v2 longest", in: v2(cmdLocal, famUnspec, strings.Repeat("x", 4096)), want: Header{Version: V2, Local: true}},
	{name: "v2 too long", in: signatureV2 + "\x21\x11\x10\x01", err: ErrTooLong},
	{name: "v2 too long, told by the first byte", in: signatureV2 + "\x21\x11\x11", err: ErrTooLong},
	{name: "v2 TLV of two bytes", in: v2(cmdProxy, famTCP4, pay4+"\x04\x00"), err: errTLV},
	{name: "v2 TLV too long", in: v2(cmdProxy, famTCP4, pay4+"\x04\x00\x02x"), err: errTLV},
	{name: "v2 TLV leaves one byte", in: v2(cmdProxy, famTCP4, pay4+"\x04\x00\x00x"), err: errTLV},
	{name: "v2 TLV too long, told before it came", in: signatureV2 + "\x21\x11\x00\x14" + pay4 + "\x04\x01", err: errTLV},
	{name: "v2 CRC too short", in: v2(cmdProxy, famTCP4, pay4+"\x03\x00\x03xxx"), err: errCRCSize},
	{name: "v2 CRC without room", in: signatureV2 + "\x21\x11\x00\x10" + pay4 + "\x03", err: errTLV},
	{name: "v2 CRC wrong", in: v2(cmdProxy, famTCP4, pay4+"\x03\x00\x04\x00\x00\x00\x00"), err: errCRC},
	{name: "v2 CRC twice", in: signatureV2 + "\x21\x11\x00\x1a" + pay4 + "\x03\x00\x04xxxx\x03", err: errCRCTwice},
}

func TestParse(t *testing.T) {
	for _, tt := range parseTests {
		t.Run(tt.name, func(t *testing.T) {
			got, n, err := Parse([]byte(tt.in))
			if !errors.Is(err, tt.err) || got != tt.want {
				t.Fatalf("Parse(%q) = %+v, %d, %v; want %+v, %v", tt.in, got, n, err, tt.want, tt.err)
			}
			if tt.err == nil && n == 0 || tt.err != nil && n != 0 {
				t.Fatalf("n = %d with error %v", n, err)
			}
		})
	}
}

// TestParseLeavesTheRest: what follows a header is not looked at.
func TestParseLeavesTheRest(t *testing.T) {
	for _, tt := range parseTests {
		if tt.err != nil {
			continue
		}
		_, n, _ := Parse([]byte(tt.in))
		_, m, err := Parse([]byte(tt.in[:n] + "\r\n\x00 more"))
		if m != n || err != nil {
			t.Errorf("%s: with more bytes behind it: n = %d, %v; want %d", tt.name, m, err, n)
		}
	}
}

// TestParsePrefixes: every beginning of a good header is incomplete, and every beginning of a bad one is incomplete or
// already refused, never good.
func TestParsePrefixes(t *testing.T) {
	for _, tt := range parseTests {
		_, n, _ := Parse([]byte(tt.in))
		if tt.err != nil {
			n = len(tt.in)
		}
		for i := range n {
			_, m, err := Parse([]byte(tt.in[:i]))
			if m != 0 || err == nil || tt.err == nil && err != ErrIncomplete {
				t.Errorf("%s: first %d bytes: n = %d, %v", tt.name, i, m, err)
			}
		}
	}
}

// TestErrorsMatch: each of the fixed errors wraps ErrMalformed and adds what is wrong.
func TestErrorsMatch(t *testing.T) {
	for _, tt := range parseTests {
		_, _, err := Parse([]byte(tt.in))
		if err == nil || err == ErrIncomplete || err == ErrTooLong {
			continue
		}
		if !errors.Is(err, ErrMalformed) || len(err.Error()) <= len(ErrMalformed.Error())+2 {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		V1.String(): "v1", V2.String(): "v2",
		Stream.String(): "stream", Datagram.String(): "datagram", Unspecified.String(): "unspecified",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
