package bpf

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	slotSize   = int(unsafe.Sizeof(flowSlot{}))
	chunkSlots = 1024 // how many are mapped together
)

// slotMemory is flow_slots in the memory of this process, mapped where flows are: the kernel counts every page of a mapped
// array as the process's, looked at or not, and a table is large and mostly empty.
//
// Flows.mu guards it. A slot's chunk is there before anybody is told of the slot, so whoever has one needs no lock.
type slotMemory struct {
	fd     int
	count  int      // of slots
	chunks [][]byte // nil = not mapped
}

func newSlotMemory(fd, count int) *slotMemory {
	return &slotMemory{fd: fd, count: count, chunks: make([][]byte, (count+chunkSlots-1)/chunkSlots)}
}

// need maps the chunk that a slot is in.
func (m *slotMemory) need(i uint32) error {
	chunk := int(i) / chunkSlots
	if m.chunks[chunk] != nil {
		return nil
	}
	from, to := m.begin(chunk), min((chunk+1)*chunkSlots, m.count)*slotSize
	mapped, err := unix.Mmap(m.fd, int64(from), to-from, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map slots of flows: %w", err)
	}
	m.chunks[chunk] = mapped
	return nil
}

// begin is where the page starts that a chunk starts in.
func (m *slotMemory) begin(chunk int) int {
	page := unix.Getpagesize()
	return chunk * chunkSlots * slotSize / page * page
}

// slot is one that is mapped.
func (m *slotMemory) slot(i uint32) *flowSlot {
	chunk := int(i) / chunkSlots
	return (*flowSlot)(unsafe.Pointer(&m.chunks[chunk][int(i)*slotSize-m.begin(chunk)]))
}

// drop unmaps a chunk that nobody has a slot of.
func (m *slotMemory) drop(chunk int) {
	if m.chunks[chunk] != nil {
		_ = unix.Munmap(m.chunks[chunk]) // it was mapped
		m.chunks[chunk] = nil
	}
}

func (m *slotMemory) dropAll() {
	for chunk := range m.chunks {
		m.drop(chunk)
	}
}
