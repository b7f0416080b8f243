package bpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/baton-lb/baton/lb/steer/program"
)

const tablePiece = uint32(len(flowTable{}.Backends))

// SetPool tells of a pool, or tells it anew. The table gets a new version beside the one that is in use; that stays for
// those who have just seen the pool as it was, until the next.
func (s *Steer) SetPool(p program.Pool) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("tell pool %d: %w", p.ID, err)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	var was flowPool
	if err := s.flows.maps.SteerPools.Lookup(uint32(p.ID), &was); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	e := flowPool{
		Service: uint32(p.Service), Answer: answers[p.Answer], RefuseAbsent: bit(p.Absent == program.RefuseNew), ByAddress: bit(p.ByAddress),
		Version: was.Version + 1, Length: uint32(len(p.Table)),
	}
	if err := s.forgetTable(p.ID, e.Version); err != nil { // of a process that died here
		return err
	}
	if err := s.putTable(p.ID, e.Version, p.Table); err != nil {
		return err
	}
	if err := s.setMembers(p.ID, p.Members); err != nil {
		return err
	}
	if p.Answer == program.ByTicket {
		err := s.flows.maps.SteerTickets.Update(uint32(p.ID), flowTickets{}, ebpf.UpdateNoExist)
		if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			return err
		}
	}
	if err := s.flows.maps.SteerPools.Put(uint32(p.ID), e); err != nil {
		return err
	}
	return s.forgetTable(p.ID, was.Version-1)
}

func (s *Steer) putTable(id program.PoolID, version uint32, table []program.BackendID) error {
	at := flowTableAt{Pool: uint32(id), Version: version}
	for piece := range slices.Chunk(table, int(tablePiece)) {
		var t flowTable
		for i, b := range piece {
			t.Backends[i] = uint32(b)
		}
		if err := s.flows.maps.SteerTables.Put(at, t); err != nil {
			return err
		}
		at.Piece++
	}
	return nil
}

func (s *Steer) table(id, version, length uint32) ([]program.BackendID, error) {
	var table []program.BackendID
	for piece := uint32(0); uint32(len(table)) < length; piece++ {
		var t flowTable
		if err := s.flows.maps.SteerTables.Lookup(flowTableAt{Pool: id, Version: version, Piece: piece}, &t); err != nil {
			return nil, err
		}
		for _, b := range t.Backends[:min(tablePiece, length-uint32(len(table)))] {
			table = append(table, program.BackendID(b))
		}
	}
	return table, nil
}

func (s *Steer) forgetTable(id program.PoolID, version uint32) error {
	return forgetAll(s.flows.maps.SteerTables, func(i uint32) flowTableAt {
		return flowTableAt{Pool: uint32(id), Version: version, Piece: i}
	})
}

func (s *Steer) setMembers(id program.PoolID, members []program.BackendID) error {
	for _, b := range members {
		if err := s.flows.maps.SteerMembers.Put(flowMember{Pool: uint32(id), Backend: uint32(b)}, uint32(1)); err != nil {
			return err
		}
	}
	for _, b := range s.members[id] {
		if slices.Contains(members, b) {
			continue
		}
		if err := forget(s.flows.maps.SteerMembers, flowMember{Pool: uint32(id), Backend: uint32(b)}); err != nil {
			return err
		}
	}
	s.members[id] = slices.Clone(members)
	return nil
}

// DeletePool forgets one.
func (s *Steer) DeletePool(id program.PoolID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var was flowPool
	err := s.flows.maps.SteerPools.Lookup(uint32(id), &was)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	err = errors.Join(err, forget(s.flows.maps.SteerPools, uint32(id)), forget(s.flows.maps.SteerTickets, uint32(id)),
		s.forgetTable(id, was.Version), s.forgetTable(id, was.Version-1), s.setMembers(id, nil))
	delete(s.members, id)
	if err != nil {
		return fmt.Errorf("delete pool %d: %w", id, err)
	}
	return nil
}

// Tickets says how many choices of a pool have been used since it was made, and how many wait.
func (s *Steer) Tickets(id program.PoolID) (used uint64, waiting int) {
	var t flowTickets
	if err := s.flows.maps.SteerTickets.Lookup(uint32(id), &t); err != nil {
		return 0, 0
	}
	return t.Head, int(t.Tail - t.Head)
}

// Refill adds choices behind those that wait, and returns for how many there was room.
func (s *Steer) Refill(id program.PoolID, choices []program.BackendID) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(choices), len(s.order.Backends))
	s.order.Pool, s.order.Count = uint32(id), uint32(n)
	for i, b := range choices[:n] {
		s.order.Backends[i] = uint32(b)
	}
	done, err := s.runOrder(s.flows.orders.refill)
	if err != nil {
		return 0, fmt.Errorf("refill pool %d: %w", id, err)
	}
	return done, nil
}

// Flush takes back all choices that wait, and returns them.
func (s *Steer) Flush(id program.PoolID) ([]program.BackendID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order.Pool = uint32(id)
	done, err := s.runOrder(s.flows.orders.flush)
	if err != nil {
		return nil, fmt.Errorf("flush pool %d: %w", id, err)
	}
	back := make([]program.BackendID, min(done, len(s.order.Backends)))
	for i := range back {
		back[i] = program.BackendID(s.order.Backends[i])
	}
	return back, nil
}
