package testnet

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
)

// Sum is the length and the SHA-256 of a stream.
type Sum struct {
	Bytes  int64
	Digest [sha256.Size]byte
}

func (s Sum) String() string { return fmt.Sprintf("%d bytes, sha256 %x", s.Bytes, s.Digest) }

// Stream returns n bytes that no compression or repetition could stand in for,
// the same for the same seed.
func Stream(seed uint64, n int64) io.Reader {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return io.LimitReader(rand.NewChaCha8(key), n)
}

// StreamSum is the sum of Stream(seed, n).
func StreamSum(seed uint64, n int64) Sum {
	s, _ := ReceiveBulk(Stream(seed, n))
	return s
}

// SendBulk writes Stream(seed, n) and returns the sum of what was written.
func SendBulk(w io.Writer, seed uint64, n int64) (Sum, error) {
	return CopySum(w, Stream(seed, n))
}

// ReceiveBulk reads to the end and returns the sum of what was read.
func ReceiveBulk(r io.Reader) (Sum, error) { return CopySum(io.Discard, r) }

// CopySum copies to the end and returns the sum of what was written.
func CopySum(w io.Writer, r io.Reader) (Sum, error) {
	h := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(w, h)}, struct{ io.Reader }{r}, make([]byte, 64<<10))
	s := Sum{Bytes: n}
	h.Sum(s.Digest[:0])
	return s, err
}
