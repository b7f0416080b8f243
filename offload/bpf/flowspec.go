package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/baton-lb/baton/internal/flow"
)

// FlowSpec is a flow in the kernel: a client's connection or session with a frontend, and the balancer's with a backend.
// All four addresses are of one family.
type FlowSpec struct {
	Proto    flow.Proto // TCP or UDP
	Client   netip.AddrPort
	Frontend netip.AddrPort // where the client sends
	Local    netip.AddrPort // where the backend sends
	Backend  netip.AddrPort

	// Of the SYN of our own to the backend: without the option, because the client's had none.
	NoTimestamps bool
	NoSACK       bool

	Note []byte // whatever the owner wants to find again; at most NoteSize
}

// NoteSize is how many bytes of note are kept with a flow. Shorter ones are filled up with zeros.
const NoteSize = len(flowNote{}.Bytes)

// ErrFamily says that a flow's addresses are not all of one family.
var ErrFamily = errors.New("addresses of different families")

// Direction is which way a packet travels.
type Direction uint8

// The directions.
const (
	ToBackend = Direction(flowDirectionTO_BACKEND)
	ToClient  = Direction(flowDirectionTO_CLIENT)

	directions = Direction(flowDirectionDIRECTIONS)
)

// Other is the opposite direction.
func (d Direction) Other() Direction { return ToClient - d }

func (d Direction) String() string {
	if d == ToBackend {
		return "to backend"
	}
	return "to client"
}

func (s FlowSpec) check() error {
	if s.Proto != flow.TCP && s.Proto != flow.UDP {
		return fmt.Errorf("protocol %s is not carried", s.Proto)
	}
	if len(s.Note) > NoteSize {
		return fmt.Errorf("note of %d bytes: there is room for %d", len(s.Note), NoteSize)
	}
	for _, a := range []netip.AddrPort{s.Client, s.Frontend, s.Local, s.Backend} {
		if !a.IsValid() || a.Port() == 0 {
			return fmt.Errorf("flow without an address: %s", a)
		}
		if a.Addr().Unmap().Is4() != s.Client.Addr().Unmap().Is4() {
			return fmt.Errorf("%w: %s and %s", ErrFamily, s.Client, a)
		}
	}
	return nil
}

// tuple is of the packets that travel in a direction, as they arrive.
func (s FlowSpec) tuple(d Direction) flowTuple {
	from, to := s.Client, s.Frontend
	if d == ToClient {
		from, to = s.Backend, s.Local
	}
	return flowTuple{
		Source: flowAddress(addressKey(from.Addr())), SourcePort: wirePort(from.Port()),
		Destination: flowAddress(addressKey(to.Addr())), DestinationPort: wirePort(to.Port()),
		Protocol: uint8(s.Proto),
	}
}

// element says what the packets of a direction leave with: the other direction's addresses, the other way round.
func (s FlowSpec) element(d Direction, slot, generation uint32) flowElement6 {
	back := s.tuple(d.Other())
	return flowElement6{
		Source: back.Destination, SourcePort: back.DestinationPort,
		Destination: back.Source, DestinationPort: back.SourcePort,
		Whose: flowWhose{Of: slot, Direction: uint8(d), Generation: generation},
	}
}

// specOf reads a flow out of the element of its ToBackend direction.
func specOf(t flowTuple, e flowElement6) FlowSpec {
	return FlowSpec{
		Proto:    flow.Proto(t.Protocol),
		Client:   addrPort(t.Source, t.SourcePort),
		Frontend: addrPort(t.Destination, t.DestinationPort),
		Local:    addrPort(e.Source, e.SourcePort),
		Backend:  addrPort(e.Destination, e.DestinationPort),
	}
}

// wirePort is a port in network byte order.
func wirePort(port uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], port)
	return binary.NativeEndian.Uint16(b[:])
}

func addrPort(a flowAddress, port uint16) netip.AddrPort {
	var b [16]byte
	for i, w := range a.Words {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(b).Unmap(), wirePort(port))
}
