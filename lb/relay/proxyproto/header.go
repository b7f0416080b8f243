package proxyproto

import (
	"errors"
	"fmt"
	"net/netip"
)

// Version is the version of a header: 1 is a line of text, 2 is binary.
type Version uint8

// The versions there are.
const (
	V1 Version = 1
	V2 Version = 2
)

// String gives the version as configurations write it: "v1", "v2".
func (v Version) String() string { return fmt.Sprintf("v%d", uint8(v)) }

// Transport says what the proxied flow is made of.
type Transport uint8

// The transports a header can name. Version 1 knows Stream only.
const (
	Unspecified Transport = iota
	Stream                // TCP
	Datagram              // UDP
)

// String gives the transport in lower case.
func (t Transport) String() string {
	switch t {
	case Stream:
		return "stream"
	case Datagram:
		return "datagram"
	}
	return "unspecified"
}

// How long a header can get, in bytes: the size of a peek buffer that always holds a whole one.
const (
	MaxV1     = 107            // the specification's bound, CRLF included
	MaxV2     = v2Fixed + 4096 // our bound: addresses and TLVs; the specification allows 65535 bytes of them
	MaxAppend = MaxV1          // the most Append adds
)

// Header is what a header says.
type Header struct {
	Version Version

	// Local is set when the header conveys no address that can be used: the LOCAL command, UNKNOWN, or a family other
	// than IPv4 and IPv6. The addresses of the connection itself are then the right ones, and the fields below are zero.
	Local bool

	Transport   Transport
	Source      netip.AddrPort // the client; an IPv4-mapped address is unmapped
	Destination netip.AddrPort // what the client connected to
}

// What can be wrong with a header. The errors of this package are allocated once: refusing costs nothing either.
var (
	// ErrIncomplete says that the bytes are the beginning of a header and that more are needed.
	ErrIncomplete = errors.New("incomplete PROXY header")

	// ErrMalformed says that no bytes that may follow can make this a header. It is wrapped with what is wrong.
	ErrMalformed = errors.New("malformed PROXY header")

	// ErrTooLong says that a version 2 header announces more than MaxV2 bytes.
	ErrTooLong = errors.New("PROXY header too long")
)

// malformed makes one of the package's fixed errors.
func malformed(what string) error { return fmt.Errorf("%w: %s", ErrMalformed, what) }

var errSignature = malformed("neither version's signature")

// Parse reads the header at the beginning of b and says how many bytes it takes. It never keeps b.
//
// The error is ErrIncomplete, ErrTooLong, or wraps ErrMalformed. ErrIncomplete is returned only if bytes exist that
// complete b to a header, with one exception: a CRC32C is judged when the header is whole. In a datagram an incomplete
// header is a malformed one.
func Parse(b []byte) (h Header, n int, err error) {
	if len(b) == 0 {
		return Header{}, 0, ErrIncomplete
	}
	switch b[0] {
	case signatureV1[0]:
		h, n, err = parseV1(b)
	case signatureV2[0]:
		h, n, err = parseV2(b)
	default:
		err = errSignature
	}
	if err != nil {
		return Header{}, 0, err
	}
	return h, n, nil
}

// expect consumes the literal want at the beginning of b. A shorter b that agrees as far as it goes is incomplete.
func expect(b []byte, want string, wrong error) ([]byte, error) {
	n := min(len(b), len(want))
	if string(b[:n]) != want[:n] {
		return nil, wrong
	}
	if n < len(want) {
		return nil, ErrIncomplete
	}
	return b[n:], nil
}
