package relay

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// HandedKind is what a socket is that goes from one relay to the next.
type HandedKind string

// What goes over.
const (
	HandedListener HandedKind = "listener" // of one TCP frontend
	HandedShared   HandedKind = "shared"   // of many
	HandedUDP      HandedKind = "udp"      // of a UDP frontend, on one loop
	HandedSession  HandedKind = "session"  // of a UDP session, to its backend
)

// Handed describes a socket that goes from the relay of one process to that of the
// next. Both understand it as JSON.
type Handed struct {
	Kind     HandedKind     `json:"kind"`
	Frontend netip.AddrPort `json:"frontend,omitzero"` // that it is bound to, or that a session answers through
	IPv4     bool           `json:"ipv4,omitempty"`    // shared: which family
	Loop     int            `json:"loop,omitempty"`    // UDP: whose it was
	Silent   bool           `json:"silent,omitempty"`  // a listener with a filter that lets nothing in
	Session  *savedSession  `json:"session,omitempty"`
}

// Inherited is a socket that has come over.
type Inherited struct {
	Handed
	FD int
}

// Inheritance is what a relay begins with when another process hands its own over.
type Inheritance struct {
	Loops   int          // how many event loops the other relay has
	VIPs    []netip.Addr // that have a route of ours
	Sockets []Inherited  // all but those of sessions: see Relay.Begin
}

// sockets is how many there are.
func (in *Inheritance) sockets() int {
	if in == nil {
		return 0
	}
	return len(in.Sockets)
}

// handedBatch is how many sockets are handed over at once: each is open twice
// meanwhile, and there may be few descriptors left.
const handedBatch = 32

// handing collects copies of descriptors for one call.
type handing struct {
	what []Handed
	fds  []int
}

// add copies a descriptor.
func (h *handing) add(what Handed, fd int) error {
	c, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("copy the descriptor of a socket: %w", err)
	}
	h.what, h.fds = append(h.what, what), append(h.fds, c)
	return nil
}

// pass hands over what was collected, and closes the copies.
func (h *handing) pass(each func([]Handed, []int) error) (err error) {
	if len(h.fds) > 0 {
		err = each(h.what, h.fds)
	}
	h.drop()
	return err
}

func (h *handing) drop() {
	for _, fd := range h.fds {
		unix.Close(fd)
	}
	*h = handing{}
}
