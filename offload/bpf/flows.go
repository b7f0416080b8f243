package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
)

// FlowsOptions configures Flows. The zero value works.
type FlowsOptions struct {
	Dir      string       // bpffs directory that the maps are pinned in; "" = nothing outlives the process
	Capacity int          // flows there is room for; 0 = DefaultFlows. Maps that are there keep theirs
	XDP      bool         // forward in XDP too, where a device's driver has it
	Log      *slog.Logger // nil = silence
	Steer    SteerOptions

	// Later leaves the flows that are pinned to the process that has them, until Adopt. Nothing else may be called before.
	Later bool
}

// DefaultFlows is for how many flows there is room.
const DefaultFlows = 131072

// Flows is the program that carries flows, and its maps: of one network namespace.
type Flows struct {
	// Immutable.
	log      *slog.Logger
	dir      string
	maps     flowMaps
	programs devicePrograms // XDP: nil unless asked for
	devices  *devices
	events   *ringbuf.Reader
	capacity int
	options  SteerOptions
	orders   orderPrograms

	// mu guards what follows.
	mu     sync.Mutex
	memory *slotMemory
	flows  map[uint32]*Flow // by slot
	free   []uint32
	spent  []uint32 // slots that a program may still be looking at: free after a grace period
	steer  *Steer   // nil until somebody asks for it
	closed bool
}

// orderPrograms do what userspace cannot do to a map by itself: see c/order.h.
type orderPrograms struct{ refill, flush, end, reset *ebpf.Program }

// OpenFlows loads the program for the calling thread's network namespace, and attaches it nowhere. With a directory it
// takes over the flows that are pinned there. The error wraps ErrNotSupported, ErrPermission or ErrIncompatible, or says
// what else the kernel did not like.
func OpenFlows(o FlowsOptions) (_ *Flows, err error) {
	f := &Flows{log: o.Log, dir: o.Dir, options: o.Steer, flows: make(map[uint32]*Flow)}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open flows: %w", explain(err, handoffNeeds)), f.Close())
		}
	}()
	_ = rlimit.RemoveMemlock() // see AttachGuard
	if err := f.load(max(1, cmp.Or(o.Capacity, DefaultFlows)), o.XDP); err != nil {
		return nil, err
	}
	f.capacity = int(f.maps.FlowSlots.MaxEntries()) - 1
	f.memory = newSlotMemory(f.maps.FlowSlots.FD(), f.capacity+1)
	// Not at Close: a flow may still be looked at then, which keeps f.
	runtime.AddCleanup(f, (*slotMemory).dropAll, f.memory)
	if f.events, err = ringbuf.NewReader(f.maps.FlowEvents); err != nil {
		return nil, fmt.Errorf("open ring of events: %w", err)
	}
	if f.devices, err = newDevices(f.programs, linksDir(o.Dir), o.XDP, f.log); err != nil {
		return nil, err
	}
	f.devices.ports = f
	if o.Later {
		return f, nil
	}
	return f, f.Adopt()
}

// Adopt takes over the flows that are pinned, after FlowsOptions.Later: to load the programs takes longer than anybody
// should be without them.
func (f *Flows) Adopt() error {
	if err := f.adopt(); err != nil {
		return fmt.Errorf("adopt flows: %w", err)
	}
	return nil
}

// load makes the maps, or takes those that are pinned, and loads the programs.
func (f *Flows) load(capacity int, xdp bool) error {
	spec, err := loadFlow()
	if err != nil {
		return err
	}
	for _, family := range []string{flowMapFlows4, flowMapFlows6} {
		spec.Maps[family].MaxEntries = uint32(directions) * uint32(capacity+max(1, cmp.Or(f.options.Flows, DefaultSteered)))
	}
	spec.Maps[flowMapFlowSlots].MaxEntries = 1 + uint32(capacity)
	spec.Maps[flowMapFlowNotes].MaxEntries = uint32(capacity)
	if !xdp {
		delete(spec.Programs, flowProgFlowXdp)
	}
	var options ebpf.CollectionOptions
	if f.dir != "" {
		if options.MapReplacements, err = f.pinned(spec); err != nil {
			return err
		}
		defer closeMaps(options.MapReplacements) // the collection has its own
	}
	loaded, err := ebpf.NewCollectionWithOptions(spec, options)
	if err != nil {
		return err
	}
	defer loaded.Close()
	f.programs = devicePrograms{
		Ingress: loaded.DetachProgram(flowProgFlowIngress), Egress: loaded.DetachProgram(flowProgFlowEgress),
		XDP: loaded.DetachProgram(flowProgFlowXdp),
	}
	f.orders = orderPrograms{
		refill: loaded.DetachProgram(flowProgSteerRefill), flush: loaded.DetachProgram(flowProgSteerFlush),
		end: loaded.DetachProgram(flowProgSteerEnd), reset: loaded.DetachProgram(flowProgSteerReset),
	}
	return loaded.Assign(&f.maps)
}

// pinned returns all maps that outlive the process. What the programs only work in does not.
func (f *Flows) pinned(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	specs := maps.Clone(spec.Maps)
	delete(specs, flowMapFlowScratch)
	delete(specs, flowMapSteerOrder)
	pinned, _, err := pinnedMaps(f.dir, specs)
	return pinned, err
}

// All lists the flows, adopted ones too, in no order.
func (f *Flows) All() []*Flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*Flow, 0, len(f.flows))
	for _, w := range f.flows {
		all = append(all, w)
	}
	return all
}

// SetLot says which device held packets wait at; 0 = they are dropped.
func (f *Flows) SetLot(ifindex int) error {
	s := flowSettings{Lot: uint32(ifindex)}
	if err := f.maps.FlowSettings.Update(uint32(0), s, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("set parking lot: %w", err)
	}
	return nil
}

// Close lets go of the flows: what is pinned lives on. Of flows the gates and states can still be read and set, and with
// what is pinned they still count. It may be called more than once.
func (f *Flows) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	var errs []error
	if f.devices != nil {
		errs = append(errs, f.devices.Close())
	}
	if f.events != nil {
		errs = append(errs, f.events.Close())
	}
	if f.steer != nil {
		errs = append(errs, f.steer.close())
	}
	for _, p := range []*ebpf.Program{
		f.programs.Ingress, f.programs.Egress, f.programs.XDP, f.orders.refill, f.orders.flush, f.orders.end, f.orders.reset,
	} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	if f.maps.FlowSlots != nil {
		errs = append(errs, f.maps.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close flows: %w", err)
	}
	return nil
}
