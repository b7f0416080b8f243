package bpf

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

// ErrTooManyPeers says that there is no room for another peer.
var ErrTooManyPeers = errors.New("too many backends of services with clientAddress transparent")

// Peer is who sends what is to be diverted.
type Peer struct {
	Proto   flow.Proto // TCP or UDP
	Address netip.AddrPort
}

// AddPeers adds peers; those that are there already stay.
func (d *Divert) AddPeers(peers []Peer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	keys := make([]divertPeer, len(peers))
	for i, p := range peers {
		keys[i] = peerKey(p)
	}
	err := put(d.objects.DivertPeers, keys, make([]uint8, len(keys)))
	switch {
	case errors.Is(err, unix.E2BIG):
		return fmt.Errorf("add peers: %w (there is room for %d)", ErrTooManyPeers, d.objects.DivertPeers.MaxEntries())
	case err != nil:
		return fmt.Errorf("add peers: %w", err)
	}
	return nil
}

// RemovePeers removes peers; those that are not there are fine.
func (d *Divert) RemovePeers(peers []Peer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	for _, p := range peers {
		if err := forget(d.objects.DivertPeers, peerKey(p)); err != nil {
			return fmt.Errorf("remove peer %s: %w", p.Address, err)
		}
	}
	return nil
}

func peerKey(p Peer) divertPeer {
	k := divertPeer{Port: wirePort(p.Address.Port()), Protocol: uint8(p.Proto)}
	k.Address.Words = addressKey(p.Address.Addr()).Words
	return k
}
