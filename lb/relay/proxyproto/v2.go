package proxyproto

import (
	"encoding/binary"
	"net/netip"
)

// signatureV2 is 12 bytes that no text protocol starts with.
const signatureV2 = "\r\n\r\n\x00\r\nQUIT\n"

// Offsets and sizes of a version 2 header (section 2.2), in bytes.
const (
	v2Fixed   = 16 // signature, version and command, family and transport, length
	v2Command = 12
	v2Family  = 13
	v2Length  = 14

	v2Addr4 = 4 + 4 + 2 + 2
	v2Addr6 = 16 + 16 + 2 + 2
	v2Unix  = 108 + 108
)

// The values of the command and family bytes.
const (
	cmdLocal = 0x20
	cmdProxy = 0x21

	famUnspec  = 0x00
	famTCP4    = 0x11
	famUDP4    = 0x12
	famTCP6    = 0x21
	famUDP6    = 0x22
	famUnix    = 0x31
	famUnixDgm = 0x32
)

var (
	errCommand = malformed("version or command")
	errFamily  = malformed("address family or transport")
	errLength  = malformed("length is less than the addresses need")
)

// parseV2 reads a binary header.
func parseV2(b []byte) (Header, int, error) {
	if _, err := expect(b, signatureV2, errSignature); err != nil {
		return Header{}, 0, err
	}
	addrs, err := checkV2(b)
	if err != nil {
		return Header{}, 0, err
	}
	if len(b) < v2Fixed {
		return Header{}, 0, ErrIncomplete
	}
	size := v2Fixed + int(binary.BigEndian.Uint16(b[v2Length:]))
	if b[v2Command] == cmdProxy && addrs > 0 {
		if err := checkTLVs(b[:min(len(b), size)], v2Fixed+addrs, size); err != nil {
			return Header{}, 0, err
		}
	}
	if len(b) < size {
		return Header{}, 0, ErrIncomplete
	}
	return decodeV2(b), size, nil
}

// checkV2 judges as much of the fixed part as there is, and gives the size of the address block if the family is known.
func checkV2(b []byte) (addrs int, err error) {
	if len(b) <= v2Command {
		return 0, nil
	}
	if b[v2Command] != cmdLocal && b[v2Command] != cmdProxy {
		return 0, errCommand
	}
	if len(b) <= v2Family {
		return 0, nil
	}
	// LOCAL: "must discard the protocol block including the family which is ignored".
	if b[v2Command] == cmdProxy {
		if addrs, err = addressSize(b[v2Family]); err != nil {
			return 0, err
		}
	}
	if len(b) <= v2Length {
		return addrs, nil
	}
	if len(b) < v2Fixed { // the high byte of the length alone
		if int(b[v2Length])<<8 > MaxV2-v2Fixed {
			return 0, ErrTooLong
		}
		return addrs, nil
	}
	switch length := int(binary.BigEndian.Uint16(b[v2Length:])); {
	case length > MaxV2-v2Fixed:
		return 0, ErrTooLong
	case length < addrs:
		return 0, errLength
	}
	return addrs, nil
}

// addressSize gives the size of a family's address block.
func addressSize(family byte) (int, error) {
	switch family {
	case famUnspec:
		return 0, nil
	case famTCP4, famUDP4:
		return v2Addr4, nil
	case famTCP6, famUDP6:
		return v2Addr6, nil
	case famUnix, famUnixDgm:
		return v2Unix, nil
	}
	return 0, errFamily
}

// decodeV2 takes the addresses out of a whole header that was found good.
func decodeV2(b []byte) Header {
	h := Header{Version: V2}
	if b[v2Command] == cmdLocal {
		h.Local = true
		return h
	}
	p := b[v2Fixed:]
	switch b[v2Family] {
	case famTCP4, famUDP4:
		h.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(p)), binary.BigEndian.Uint16(p[8:]))
		h.Destination = netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[4:])), binary.BigEndian.Uint16(p[10:]))
	case famTCP6, famUDP6:
		h.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(p)).Unmap(), binary.BigEndian.Uint16(p[32:]))
		h.Destination = netip.AddrPortFrom(netip.AddrFrom16([16]byte(p[16:])).Unmap(), binary.BigEndian.Uint16(p[34:]))
	default:
		h.Local = true
		return h
	}
	h.Transport = Stream
	if b[v2Family] == famUDP4 || b[v2Family] == famUDP6 {
		h.Transport = Datagram
	}
	return h
}
