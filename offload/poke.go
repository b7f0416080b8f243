package offload

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
)

// Pokes makes peers say where they stand. Who gets a segment that does not fit its connection answers with an acknowledgement that does
// (RFC 9293, section 3.10.7.4; RFC 5961, section 5), and of that a program can make a reset which the peer believes.
type Pokes struct{ raw *resetter }

// OpenPokes makes the sockets for it, of the calling thread's network namespace. It needs CAP_NET_RAW.
func OpenPokes() (*Pokes, error) {
	raw, err := openResetter()
	if err != nil {
		return nil, fmt.Errorf("open sockets to ask peers with: %w", err)
	}
	return &Pokes{raw}, nil
}

// Poke sends one to a peer, as if it came from the other end of its connection.
func (p *Pokes) Poke(from, to netip.AddrPort) error {
	if err := p.raw.sendPacket(to, segment(from, to, rand.Uint32(), flagACK)); err != nil {
		return fmt.Errorf("ask %s where it stands: %w", to, err)
	}
	return nil
}

// Close closes the sockets.
func (p *Pokes) Close() error { return p.raw.close() }
