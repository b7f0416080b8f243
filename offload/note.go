package offload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// note is what the next process must know of a flow in the kernel, beyond what the
// flow map says.
type note struct {
	ID          flow.ID
	Service     string
	Picked      flow.Picked
	StartedAt   time.Time
	HandedOffAt time.Time      // zero = not yet: it was being watched when the process died
	Idle        time.Duration  // no byte either way
	HalfClosed  time.Duration  // no byte, one side closed
	Base        flow.Counters  // carried before the kernel did
	Asked       netip.AddrPort // the frontend that the client asked for, where that is not the packet's address
	Client      netip.AddrPort // as believed, where a proxy before us has sent the packets

	// TCP: the number of the next byte that each peer was to be sent when the kernel
	// took over (a reset is believed only with the right one), and what the kernel
	// adds to those of the bytes that it sends.
	ToClientNext, ToBackendNext   uint32
	ToClientDelta, ToBackendDelta uint32

	// TCP, where the service asks to keep clients' addresses: what the backend sees.
	SeenAs         flow.ClientAddress
	NotTransparent flow.NotTransparent // why not the client's own

	Ended bool // its record is finished: what is there yet is for late packets
}

// noteSize is how much room the kernel has for a note, noteVersion its first byte. Half of
// it is for the service's name: NAMESPACE/NAME:PORT has up to 143 characters.
const (
	noteSize    = 256
	noteVersion = 1
)

// errNote says that a note is not one of ours.
var errNote = errors.New("not a note of this version")

// What words are written as: their place in these lists.
var (
	pickedCodes         = []flow.Picked{"", flow.ByAlgorithm, flow.ByAffinity, flow.ByRetry}
	seenAsCodes         = []flow.ClientAddress{"", flow.ClientTransparent, flow.ClientPortChanged, flow.ClientMasked}
	notTransparentCodes = []flow.NotTransparent{
		"", flow.NotTransparentUnavailable, flow.NotTransparentFamily, flow.NotTransparentHairpin,
		flow.NotTransparentHostLocal, flow.NotTransparentOtherWay, flow.NotTransparentOutside,
	}
)

// A note is a version, fixed-size fields in little-endian order, two addresses and a name,
// each after a byte with its length, a byte of flags, and what has been added since. A
// service's name that does not fit is cut, and such a flow is adopted by nobody: that
// takes the longest name there can be beside an IPv6 address of a PROXY header.

// marshal is the note as the kernel keeps it.
func (n *note) marshal() []byte {
	b := make([]byte, 0, noteSize)
	le := binary.LittleEndian
	b = append(b, noteVersion, codeOf(pickedCodes, n.Picked))
	b = le.AppendUint64(b, uint64(n.ID))
	for _, t := range []time.Time{n.StartedAt, n.HandedOffAt, n.Base.LastSeen} {
		b = le.AppendUint64(b, uint64(unixNano(t)))
	}
	for _, v := range []uint64{
		uint64(n.Idle), uint64(n.HalfClosed),
		n.Base.BytesToBackend, n.Base.BytesToClient, n.Base.PacketsToBackend, n.Base.PacketsToClient,
	} {
		b = le.AppendUint64(b, v)
	}
	for _, v := range []uint32{n.ToClientNext, n.ToBackendNext, n.ToClientDelta, n.ToBackendDelta} {
		b = le.AppendUint32(b, v)
	}
	for _, a := range []netip.AddrPort{n.Asked, n.Client} {
		b = appendAddrPort(b, a)
	}
	name := n.Service[:min(len(n.Service), noteSize-len(b)-4)]
	b = append(b, byte(len(name)))
	b = append(b, name...)
	flags := byte(0)
	if n.Ended {
		flags = 1
	}
	return append(b, flags, codeOf(seenAsCodes, n.SeenAs), codeOf(notTransparentCodes, n.NotTransparent))
}

// unmarshalNote reads what marshal has written, and whatever follows it.
func unmarshalNote(b []byte) (n note, err error) {
	r := noteReader{b: b}
	if r.byte() != noteVersion {
		return n, errNote
	}
	n.Picked = decode(pickedCodes, r.byte())
	n.ID = flow.ID(r.uint64())
	n.StartedAt, n.HandedOffAt, n.Base.LastSeen = r.time(), r.time(), r.time()
	n.Idle, n.HalfClosed = time.Duration(r.uint64()), time.Duration(r.uint64())
	n.Base.BytesToBackend, n.Base.BytesToClient = r.uint64(), r.uint64()
	n.Base.PacketsToBackend, n.Base.PacketsToClient = r.uint64(), r.uint64()
	n.ToClientNext, n.ToBackendNext = r.uint32(), r.uint32()
	n.ToClientDelta, n.ToBackendDelta = r.uint32(), r.uint32()
	n.Asked, n.Client = r.addrPort(), r.addrPort()
	n.Service = string(r.next(int(r.byte())))
	n.Ended = r.byte() != 0
	n.SeenAs, n.NotTransparent = decode(seenAsCodes, r.byte()), decode(notTransparentCodes, r.byte())
	switch {
	case r.short:
		return note{}, fmt.Errorf("%w: it is cut short", errNote)
	case n.ID == 0 || n.Idle < 0 || n.HalfClosed < 0:
		return note{}, fmt.Errorf("%w: it makes no sense", errNote)
	}
	return n, nil
}

// appendAddrPort writes the length of the address, the address, and the port.
func appendAddrPort(b []byte, a netip.AddrPort) []byte {
	if !a.Addr().IsValid() {
		return append(b, 0)
	}
	raw := a.Addr().AsSlice()
	b = append(append(b, byte(len(raw))), raw...)
	return binary.LittleEndian.AppendUint16(b, a.Port())
}

// noteReader reads fields until there are none left.
type noteReader struct {
	b     []byte
	short bool
}

func (r *noteReader) next(n int) []byte {
	if n > len(r.b) {
		r.short, r.b = true, nil
		return make([]byte, n)
	}
	field := r.b[:n]
	r.b = r.b[n:]
	return field
}

func (r *noteReader) byte() byte     { return r.next(1)[0] }
func (r *noteReader) uint32() uint32 { return binary.LittleEndian.Uint32(r.next(4)) }
func (r *noteReader) uint64() uint64 { return binary.LittleEndian.Uint64(r.next(8)) }

func (r *noteReader) time() time.Time {
	ns := int64(r.uint64())
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func (r *noteReader) addrPort() netip.AddrPort {
	n := int(r.byte())
	if n == 0 {
		return netip.AddrPort{}
	}
	a, ok := netip.AddrFromSlice(r.next(n))
	if !ok {
		r.short = true
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, binary.LittleEndian.Uint16(r.next(2)))
}

func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// codeOf is what a word is written as; one that is not known is as none.
func codeOf[T comparable](list []T, word T) byte { return byte(max(0, slices.Index(list, word))) }

func decode[T any](list []T, code byte) (word T) {
	if int(code) < len(list) {
		word = list[code]
	}
	return word
}
