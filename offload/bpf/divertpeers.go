package bpf

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

// ErrTooManyPeers says that there is no room for another peer: before Linux 5.10 the table cannot grow.
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
	all := make([]uint8, len(keys))
	err := put(d.peers, keys, all)
	if errors.Is(err, unix.E2BIG) {
		if err = d.growLocked(len(keys)); err == nil {
			err = put(d.peers, keys, all)
		}
	}
	if err != nil {
		return fmt.Errorf("add peers: %w", err)
	}
	return nil
}

// growLocked puts a larger table, with what there is, in the place of the one that the program looks in, all at once.
func (d *Divert) growLocked(more int) error {
	room := d.peers.MaxEntries()
	spec := d.table.Copy()
	spec.MaxEntries = 2*room + uint32(more)
	next, err := ebpf.NewMap(spec)
	if err != nil {
		return fmt.Errorf("%w: there is room for %d, and none for a larger table: %w", ErrTooManyPeers, room, err)
	}
	if err = copyEntries[divertPeer, uint8](next, d.peers, int(room)); err == nil {
		err = d.objects.DivertPeers.Put(uint32(0), next)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: there is room for %d, and a larger table cannot be used: %w", ErrTooManyPeers, room, err), next.Close())
	}
	before := d.peers
	d.peers = next
	return before.Close()
}

// RemovePeers removes peers; those that are not there are fine.
func (d *Divert) RemovePeers(peers []Peer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	for _, p := range peers {
		if err := forget(d.peers, peerKey(p)); err != nil {
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
