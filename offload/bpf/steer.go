package bpf

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/clock"
	"github.com/baton-lb/baton/lb/steer/program"
)

// SteerOptions configures mode steer. The zero value works.
type SteerOptions struct {
	Flows               int    // there is room for; 0 = DefaultSteered. Maps that are there keep theirs
	FirstPort, LastPort uint16 // of masked clients, towards backends; 0 = 57344-60999. Nobody else may use them
}

// DefaultSteered is for how many steered flows there is room.
const DefaultSteered = 131072

// By default masked clients come from the upper part of what the kernel gives to connections.
const defaultSteerFirst, defaultSteerLast = 57344, 60999

// Steer is the program's part in mode steer: see lb/steer/program. It lives as long as its Flows.
type Steer struct {
	// Immutable.
	flows    *Flows
	settings *flowSteering // shared with the program
	open     []int64       // the same, by backend
	events   *ringbuf.Reader

	services sync.Map // program.ServiceID by program.BackendID; of deleted ones too: a flow of theirs may be left

	// mu guards what follows, and is held over an update.
	mu      sync.Mutex
	order   *flowOrder // shared with the programs of orders
	members map[program.PoolID][]program.BackendID
	sets    map[program.SourcesID]sourcesOf
	lastSet uint32 // number that was given
	desk    *desk  // nil until somebody asks for first packets
	closed  bool
}

var _ program.Program = (*Steer)(nil)

// Steer gives access to what belongs to mode steer. It is for the time after Adopt, and each call returns the same.
func (f *Flows) Steer() (*Steer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, ErrClosed
	}
	if f.steer != nil {
		return f.steer, nil
	}
	s, err := f.openSteer()
	if err != nil {
		return nil, fmt.Errorf("open mode steer: %w", err)
	}
	f.steer = s
	return s, nil
}

func (f *Flows) openSteer() (_ *Steer, err error) {
	var shared sharedMemory
	defer func() {
		if err != nil {
			shared.drop()
		}
	}()
	s := &Steer{flows: f, members: make(map[program.PoolID][]program.BackendID), sets: make(map[program.SourcesID]sourcesOf)}
	settings, err := shared.of(f.maps.SteerSettings)
	if err != nil {
		return nil, err
	}
	open, err := shared.of(f.maps.SteerOpen)
	if err != nil {
		return nil, err
	}
	order, err := shared.of(f.maps.SteerOrder)
	if err != nil {
		return nil, err
	}
	if s.events, err = ringbuf.NewReader(f.maps.SteerEvents); err != nil {
		return nil, fmt.Errorf("open ring of events: %w", err)
	}
	s.settings = (*flowSteering)(unsafe.Pointer(&settings[0]))
	s.open = unsafe.Slice((*int64)(unsafe.Pointer(&open[0])), f.maps.SteerOpen.MaxEntries())
	s.order = (*flowOrder)(unsafe.Pointer(&order[0]))
	s.settings.FirstPort, s.settings.Ports = f.options.ports()
	atomic.StoreUint64(&s.settings.Limit, uint64(f.maps.Flows4.MaxEntries())/uint64(directions)-uint64(f.capacity))
	// Not at close: somebody may still be looking.
	runtime.AddCleanup(s, sharedMemory.drop, shared)
	return s, s.recall()
}

// ports are the first one, and how many there are.
func (o SteerOptions) ports() (first, count uint16) {
	first, last := o.FirstPort, o.LastPort
	if first == 0 {
		first, last = defaultSteerFirst, defaultSteerLast
	}
	if first > last {
		return first, 0
	}
	return first, last - first + 1
}

func (s *Steer) close() error {
	s.mu.Lock()
	s.closed = true
	d := s.desk
	s.mu.Unlock()
	err := s.events.Close()
	if d != nil {
		err = errors.Join(err, s.closeDesk(d))
	}
	return err
}

// Beat says that the process is there.
func (s *Steer) Beat() {
	atomic.StoreUint64(&s.settings.Beat, uint64(clock.Monotonic()))
	runtime.KeepAlive(s)
}

// Open is how many flows of a backend are open.
func (s *Steer) Open(b program.BackendID) int64 {
	defer runtime.KeepAlive(s)
	if int(b) >= len(s.open) {
		return 0
	}
	return atomic.LoadInt64(&s.open[b])
}

// Sessions is how many UDP sessions of a service there are.
func (s *Steer) Sessions(id program.ServiceID) int {
	var u flowUsage
	if err := s.flows.maps.SteerUsage.Lookup(uint32(id), &u); err != nil {
		return 0 // after Close
	}
	return int(u.Sessions)
}

// Counts are of packets and flows, since the maps were made.
func (s *Steer) Counts() program.Counts {
	of := func(c flowSteerCount) (n uint64) {
		var perCPU []uint64
		if err := s.flows.maps.SteerCounts.Lookup(c, &perCPU); err != nil {
			return 0 // after Close
		}
		for _, v := range perCPU {
			n += v
		}
		return n
	}
	return program.Counts{
		Tickets: of(flowSteerCountSTEER_COUNT_TICKETS), Tables: of(flowSteerCountSTEER_COUNT_TABLES), Affinity: of(flowSteerCountSTEER_COUNT_AFFINITY),
		Refused: of(flowSteerCountSTEER_COUNT_REFUSED), Dropped: of(flowSteerCountSTEER_COUNT_DROPPED),
		RefusedSource: of(flowSteerCountSTEER_COUNT_REFUSED_SOURCE), OverLimit: of(flowSteerCountSTEER_COUNT_OVER_LIMIT),
		Full: of(flowSteerCountSTEER_COUNT_FULL), NoPort: of(flowSteerCountSTEER_COUNT_NO_PORT), Stray: of(flowSteerCountSTEER_COUNT_STRAY),
		Packets: of(flowSteerCountSTEER_COUNT_PACKETS), SentAway: of(flowSteerCountSTEER_COUNT_SENT_AWAY), Unasked: of(flowSteerCountSTEER_COUNT_UNASKED),
		EventsLost: of(flowSteerCountSTEER_COUNT_EVENTS_LOST),
	}
}

// sharedMemory is arrays that are mapped.
type sharedMemory struct{ mapped *[][]byte }

func (m *sharedMemory) of(array *ebpf.Map) ([]byte, error) {
	size := int(array.ValueSize()+7) / 8 * 8 * int(array.MaxEntries())
	page := unix.Getpagesize()
	b, err := unix.Mmap(array.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", array, err)
	}
	if m.mapped == nil {
		m.mapped = new([][]byte)
	}
	*m.mapped = append(*m.mapped, b)
	return b, nil
}

func (m sharedMemory) drop() {
	if m.mapped == nil {
		return
	}
	for _, b := range *m.mapped {
		_ = unix.Munmap(b) // it was mapped
	}
}

// runOrder runs a program of orders, which does what s.order says. s.mu is held.
func (s *Steer) runOrder(p *ebpf.Program) (done int, err error) {
	if s.closed {
		return 0, ErrClosed
	}
	s.order.Done = 0
	_, err = p.Run(&ebpf.RunOptions{Data: make([]byte, 14)}) // as long as an Ethernet header; nobody reads it
	return int(s.order.Done), err
}

var errNoRoom = errors.New("there is no room for its number")
