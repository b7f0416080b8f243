package proxyproto

import "net/netip"

const signatureV1 = "PROXY "

var (
	errProtocol = malformed("protocol is none of TCP4, TCP6, UNKNOWN")
	errAddress4 = malformed("IPv4 address")
	errAddress6 = malformed("IPv6 address")
	errPort     = malformed("port")
	errLine     = malformed("line does not end with CRLF")
)

// parseV1 reads a line such as "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n" (section 2.1).
func parseV1(b []byte) (Header, int, error) {
	rest, err := expect(b, signatureV1, errSignature)
	if err != nil {
		return Header{}, 0, err
	}
	if len(rest) == 0 {
		return Header{}, 0, ErrIncomplete
	}
	if rest[0] == 'U' {
		return parseV1Unknown(b, rest)
	}
	if rest, err = expect(rest, "TCP", errProtocol); err != nil {
		return Header{}, 0, err
	}
	if len(rest) == 0 {
		return Header{}, 0, ErrIncomplete
	}
	family := rest[0]
	if family != '4' && family != '6' {
		return Header{}, 0, errProtocol
	}
	if rest, err = expect(rest[1:], " ", errProtocol); err != nil {
		return Header{}, 0, err
	}
	h := Header{Version: V1, Transport: Stream}
	if rest, err = scanEndpoints(&h, rest, family == '4'); err != nil {
		return Header{}, 0, err
	}
	if rest, err = expect(rest, "\n", errLine); err != nil {
		return Header{}, 0, err
	}
	return h, len(b) - len(rest), nil
}

// parseV1Unknown reads the line of a proxy that does not know or does not tell: what follows UNKNOWN is to be ignored up
// to the CRLF, which must come within MaxV1 bytes.
func parseV1Unknown(b, rest []byte) (Header, int, error) {
	rest, err := expect(rest, "UNKNOWN", errProtocol)
	if err != nil {
		return Header{}, 0, err
	}
	if len(rest) > 0 && rest[0] != ' ' && rest[0] != '\r' {
		return Header{}, 0, errProtocol
	}
	if len(rest) > 1 && rest[0] == '\r' && rest[1] != '\n' {
		return Header{}, 0, errLine
	}
	start := len(b) - len(rest)
	for i := start + 1; i < min(len(b), MaxV1); i++ {
		if b[i-1] == '\r' && b[i] == '\n' {
			return Header{Version: V1, Local: true}, i + 1, nil
		}
	}
	// The last place for the CR is the last byte but one.
	if len(b) >= MaxV1 || len(b) == MaxV1-1 && b[MaxV1-2] != '\r' {
		return Header{}, 0, errLine
	}
	return Header{}, 0, ErrIncomplete
}

// scanEndpoints reads "source destination sport dport\r".
func scanEndpoints(h *Header, b []byte, ipv4 bool) ([]byte, error) {
	src, b, err := scanAddr(b, ipv4)
	if err != nil {
		return nil, err
	}
	dst, b, err := scanAddr(b, ipv4)
	if err != nil {
		return nil, err
	}
	sport, b, err := scanPort(b, ' ')
	if err != nil {
		return nil, err
	}
	dport, b, err := scanPort(b, '\r')
	if err != nil {
		return nil, err
	}
	h.Source = netip.AddrPortFrom(src.Unmap(), sport)
	h.Destination = netip.AddrPortFrom(dst.Unmap(), dport)
	return b, nil
}
