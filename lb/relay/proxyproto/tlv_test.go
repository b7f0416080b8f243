package proxyproto

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// appendTLV appends a TLV to a version 2 header and corrects its length.
func appendTLV(h []byte, typ byte, value string) []byte {
	h = append(h, typ, byte(len(value)>>8), byte(len(value)))
	h = append(h, value...)
	binary.BigEndian.PutUint16(h[v2Length:], uint16(len(h)-v2Fixed))
	return h
}

// appendCRC appends a good CRC32C TLV, computed by the library.
func appendCRC(h []byte) []byte {
	h = appendTLV(h, tlvCRC32C, "\x00\x00\x00\x00")
	binary.BigEndian.PutUint32(h[len(h)-4:], crc32.Checksum(h, crc32.MakeTable(crc32.Castagnoli)))
	return h
}

func TestCRC(t *testing.T) {
	src, dst := ap("192.0.2.1:1"), ap("198.51.100.1:2")
	good := appendCRC(appendTLV(Append(nil, V2, Stream, src, dst), 0x05, "unique id"))
	if _, n, err := Parse(append(good, "data"...)); n != len(good) || err != nil {
		t.Fatalf("n = %d, %v; want %d", n, err, len(good))
	}
	for i := v2Fixed; i < len(good); i++ {
		for bit := range 8 {
			good[i] ^= 1 << bit
			if h, _, err := Parse(good); err == nil && i != v2Fixed+v2Addr4 && i < len(good)-7 {
				t.Errorf("byte %d bit %d flipped: %+v", i, bit, h)
			}
			good[i] ^= 1 << bit
		}
	}
}

// TestCRCInTheMiddle: the checksum covers what stands behind it too.
func TestCRCInTheMiddle(t *testing.T) {
	h := appendTLV(Append(nil, V2, Stream, ap("192.0.2.1:1"), ap("198.51.100.1:2")), tlvCRC32C, "\x00\x00\x00\x00")
	at := len(h) - 4
	h = appendTLV(h, 0x04, "padding")
	binary.BigEndian.PutUint32(h[at:], crc32.Checksum(h, crc32.MakeTable(crc32.Castagnoli)))
	if _, _, err := Parse(h); err != nil {
		t.Fatal(err)
	}
	h[len(h)-1]++
	if _, _, err := Parse(h); err != errCRC {
		t.Fatalf("got %v, want %v", err, errCRC)
	}
}
