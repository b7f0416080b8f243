package bpf

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type peer -type fragment -type bridge -type diverted divert c/divert.bpf.c -- -mcpu=v3 -nostdinc -Wall -Wextra -Werror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
)

// DivertOptions configures a Divert. Mark is required.
type DivertOptions struct {
	Mark  uint32       // the bits that are set in the mark of a packet
	Peers int          // for how many there is room at first; 0 = DefaultPeers. The table grows by itself
	Log   *slog.Logger // nil = silence
}

// DefaultPeers is for how many peers there is room at first.
const DefaultPeers = 65536

// divertSet is what the names of its filters have.
const divertSet = "divert-"

// divertNeeds is what diverting cannot do without.
var divertNeeds = []Feature{featureSyscall, featureSocketLookup}

// Divert marks the packets that belong to connected sockets of one network namespace and whose sender is one of its peers,
// whatever address they are for; and of such packets it keeps those at home that a bridge would carry past.
type Divert struct {
	// Immutable.
	objects divertObjects
	table   *ebpf.MapSpec // of peers
	devices *devices

	// mu guards what follows, and is held over the system calls of one operation.
	mu      sync.Mutex
	peers   *ebpf.Map               // what divert_peers holds
	bridges map[uint32]divertBridge // as divert_ports has them
	closed  bool
}

// OpenDivert loads the program for the calling thread's network namespace, with no peers and on no device. The error wraps
// ErrNotSupported or ErrPermission, or says what else the kernel did not like.
func OpenDivert(o DivertOptions) (_ *Divert, err error) {
	d := &Divert{bridges: make(map[uint32]divertBridge)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open divert: %w", explain(err, divertNeeds)), d.Close())
		}
	}()
	_ = rlimit.RemoveMemlock() // see AttachGuard
	if err := d.load(o); err != nil {
		return nil, err
	}
	d.devices, err = newDevices(devicePrograms{
		set: divertSet, Ingress: d.objects.Divert, unfit: unfitToDivert, look: d.learnBridges,
	}, "", false, o.Log)
	return d, err
}

func (d *Divert) load(o DivertOptions) error {
	spec, err := loadDivert()
	if err != nil {
		return err
	}
	if err := spec.Variables[divertVarDivertMark].Set(o.Mark); err != nil {
		return err
	}
	d.table = spec.Maps[divertMapDivertFirst].Copy()
	room := uint32(cmp.Or(o.Peers, DefaultPeers))
	spec.Maps[divertMapDivertFirst].MaxEntries, spec.Maps[divertMapDivertPeers].InnerMap.MaxEntries = room, room
	if err := spec.LoadAndAssign(&d.objects, nil); err != nil {
		return err
	}
	d.peers = d.objects.DivertFirst
	return nil
}

// Follow keeps the program on every device of the namespace but loopback, until the context is done.
func (d *Divert) Follow(ctx context.Context) error { return d.devices.follow(ctx) }

// Sync is one round of Follow: when it returns, the program is on every device that there was.
func (d *Divert) Sync() error { return d.devices.sync() }

// Devices says where the program sits, and where not and why.
func (d *Divert) Devices() []Device { return d.devices.status() }

// unfitToDivert: packets come to bridges by their ports, and only there can be told from those for the bridge.
func unfitToDivert(l netlink.Link, _ func(int) (netlink.Link, error)) string {
	if l.Attrs().Name == "lo" {
		return "what comes by loopback is this host's own"
	}
	return ""
}

// Close takes the program off every device. It may be called more than once.
func (d *Divert) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock() // learnBridges is called with a lock of the devices held
	var errs []error
	if d.devices != nil {
		errs = append(errs, d.devices.remove())
	}
	if d.objects.Divert != nil {
		errs = append(errs, d.objects.Close(), d.peers.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close divert: %w", err)
	}
	return nil
}

// RemoveDivert takes the program of a process that has crashed off the devices of the calling thread's network namespace,
// where the kernel has not done so by itself (before Linux 6.6). It returns a line for each thing that it removed.
func RemoveDivert() (removed []string, err error) { return removeFilters(divertSet, nil) }
