package proxyproto

import (
	"encoding/binary"
	"hash/crc32"
)

// A TLV is a type, a length of two bytes and a value. We read the checksum only and step over the others.
const (
	tlvHead   = 3
	tlvCRC32C = 0x03
)

var (
	errTLV      = malformed("TLV goes beyond the header")
	errCRCSize  = malformed("CRC32C TLV is not four bytes long")
	errCRCTwice = malformed("two CRC32C TLVs")
	errCRC      = malformed("CRC32C does not match")
)

// checkTLVs walks the TLVs that lie between start and size in a header of which b is what has arrived (len(b) <= size).
// Bytes that are missing are no fault as long as they can be good.
func checkTLVs(b []byte, start, size int) error {
	crc := 0
	at := start
	for at < size {
		if size-at < tlvHead {
			return errTLV
		}
		if len(b) <= at {
			return nil
		}
		if b[at] == tlvCRC32C {
			if crc != 0 {
				return errCRCTwice
			}
			crc = at + tlvHead
		}
		length, err := tlvLength(b[at:], size-at)
		if err != nil {
			return err
		}
		if len(b) < at+tlvHead {
			return nil
		}
		at += tlvHead + length
	}
	if crc != 0 && len(b) == size {
		return checkCRC(b, crc)
	}
	return nil
}

// tlvLength reads the length of the TLV at the beginning of b, of which at least the type has arrived, and judges it
// against the room there is. A length that has not arrived in full is judged by what it can become.
func tlvLength(b []byte, room int) (int, error) {
	least, most := 0, 0xffff
	switch {
	case len(b) >= tlvHead:
		least = int(binary.BigEndian.Uint16(b[1:]))
		most = least
	case len(b) == 2:
		least = int(b[1]) << 8
		most = least | 0xff
	}
	if b[0] == tlvCRC32C {
		if least > 4 || most < 4 {
			return 0, errCRCSize
		}
		least = 4
	}
	if tlvHead+least > room {
		return 0, errTLV
	}
	// What a fixed length leaves must be nothing or another TLV.
	if left := room - tlvHead - least; (len(b) >= tlvHead || b[0] == tlvCRC32C) && left > 0 && left < tlvHead {
		return 0, errTLV
	}
	return least, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkCRC computes the CRC32C over the whole header with the four bytes at position at taken as zero (section 2.2.4). By
// hand, as the library's function would make a caller's buffer escape to the heap.
func checkCRC(b []byte, at int) error {
	crc := ^uint32(0)
	for i, c := range b {
		if i >= at && i < at+4 {
			c = 0
		}
		crc = castagnoli[byte(crc)^c] ^ crc>>8
	}
	if ^crc != binary.BigEndian.Uint32(b[at:]) {
		return errCRC
	}
	return nil
}
