package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/lb/relay"
	"github.com/baton-lb/baton/lb/source/file"
	"github.com/baton-lb/baton/lb/steer"
	"github.com/baton-lb/baton/offload"
	"github.com/baton-lb/baton/offload/bpf"
)

// kernelPath is the instance's way to hand flows to the kernel. It is a
// handoff.Offloader that can be opened after those who use it have begun, and closed
// before they end:
//
//	waiting: another instance has it → open → closed
//	         none: this host has no such way
type kernelPath struct {
	// Immutable after open.
	flows *bpf.Flows
	dir   string             // where it is pinned; "" = nowhere
	found bool               // something was pinned there before
	stop  context.CancelFunc // of run; nil = it does not
	steer *steer.Steer       // nil = nothing is steered

	offloader atomic.Pointer[offload.Offloader] // nil = not open
	none      atomic.Bool
}

var (
	_ handoff.Offloader = (*kernelPath)(nil)
	_ admin.Handoffs    = (*kernelPath)(nil)
)

// Prepare implements handoff.Offloader.
func (k *kernelPath) Prepare(r handoff.Request) (handoff.Lease, flow.NotOffloaded) {
	if o := k.offloader.Load(); o != nil {
		return o.Prepare(r)
	}
	return handoff.None.Prepare(r)
}

// Carry implements handoff.Offloader.
func (k *kernelPath) Carry(s handoff.Session) (handoff.Carrier, flow.NotOffloaded) {
	o := k.offloader.Load()
	switch {
	case o != nil:
		return o.Carry(s)
	case k.none.Load():
		return handoff.None.Carry(s)
	}
	return nil, flow.NotOffloadedBusy // for now
}

// Handoff implements admin.Handoffs.
func (k *kernelPath) Handoff(id flow.ID) (flow.HandoffResult, flow.NotOffloaded, error) {
	if o := k.offloader.Load(); o != nil {
		return o.Handoff(id)
	}
	return flow.HandoffRefused, flow.NotOffloadedUnavailable, nil
}

// handoffAll hands over what there is, big enough or not, but waits no longer than ctx.
func (k *kernelPath) handoffAll(ctx context.Context) (done int) {
	if o := k.offloader.Load(); o != nil {
		return o.HandoffAll(ctx)
	}
	return 0
}

// prepare loads what can be loaded while another process still has the kernel path.
func (k *kernelPath) prepare(stateDir string, xdp bool, ports offload.PortParams, log *slog.Logger) (err error) {
	k.found = pinned(stateDir)
	if k.dir, err = bpf.MountBPFFS(stateDir); err != nil {
		log.Warn("offloaded flows will end with this process", "err", err)
	} else if private, err := bpf.PrivateMounts(); err == nil && private {
		log.Warn("offloaded flows will end with the last process of this mount namespace", "dir", k.dir)
	}
	k.flows, err = bpf.OpenFlows(bpf.FlowsOptions{Dir: k.dir, XDP: xdp, Log: log, Steer: steerPorts(ports), Later: true})
	return err
}

// open takes over what an earlier process has left in the kernel, and begins to hand
// flows to it. It comes after prepare.
func (k *kernelPath) open(o kernelPathOptions) error {
	if err := k.flows.Adopt(); err != nil {
		return errors.Join(err, k.flows.Close())
	}
	lot, err := bpf.OpenLot(k.flows)
	if err != nil {
		o.log.Warn("handoffs will hold packets up longer: there is no place to park them", "err", err)
		lot = nil
	}
	of, err := offload.New(offload.Options{
		Kernel: offload.BPF(k.flows, lot), Registry: o.registry, Log: o.log, Ports: o.ports, StateDir: o.stateDir,
		Observe: o.metrics.Handoff.Observe, Result: o.metrics.CountHandoff,
		Adopt: func(a offload.Adopted) (bool, flow.Reason) {
			o.adopted(a.Record, a.Frontend)
			return true, "" // what the configuration says of it comes later: see relay.Relay.Adopt
		},
	})
	if err != nil {
		return err
	}
	k.offloader.Store(of)
	return nil
}

// giveUp undoes prepare, and open where that has failed.
func (k *kernelPath) giveUp(stateDir string) (err error) {
	k.none.Store(true)
	if k.flows != nil {
		err = k.flows.Close()
	}
	if !k.found { // what was made for nothing
		_, undone := removeKernelPath(stateDir, k.dir)
		err = errors.Join(err, undone)
	}
	return err
}

// pinned reports whether an earlier process, of whatever network namespace, has left
// flows below a state directory, or may have.
func pinned(stateDir string) bool {
	found, err := filepath.Glob(filepath.Join(stateDir, "bpf", "*", "*"))
	return err != nil || len(found) > 0
}

type kernelPathOptions struct {
	registry *flow.Registry
	metrics  *admin.Metrics
	ports    offload.PortParams
	stateDir string
	adopted  func(rec *flow.Record, frontend netip.AddrPort)
	log      *slog.Logger
}

// run looks after the flows and the devices until ctx is done, or letGo.
func (k *kernelPath) run(ctx context.Context, in *instance) {
	of, flows := k.offloader.Load(), k.flows
	ctx, k.stop = context.WithCancel(ctx)
	in.running.Go(func() { _ = of.Run(ctx) })
	if in.steer != nil {
		k.steer = in.steer
		in.running.Go(func() { in.steer.Run(ctx) })
	}
	in.running.Go(func() {
		for {
			err := flows.Follow(ctx)
			if err == nil {
				return
			}
			in.log.Warn("changes of devices are not seen", "err", err)
			wait(ctx, time.Second)
		}
	})
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// letGo closes it. What is in the kernel lives on, and is somebody else's to find.
func (k *kernelPath) letGo() error {
	o := k.offloader.Swap(nil)
	if o == nil {
		return nil
	}
	if k.steer != nil {
		k.steer.Close()
	}
	err := o.Close()
	if k.stop != nil {
		k.stop()
	}
	return err
}

// closeKernelPath lets go of the kernel path, and removes it when no flow lives
// there.
func (in *instance) closeKernelPath() error {
	k := &in.kernel
	if in.handing.isDone() || k.none.Load() {
		return nil
	}
	if k.offloader.Load() == nil { // it has been prepared at most
		return k.giveUp(in.o.stateDir)
	}
	left := in.carried()
	if in.steer != nil {
		in.steer.CloseFrontends()
	}
	if err := k.letGo(); err != nil || left > 0 {
		return err
	}
	_, err := removeKernelPath(in.o.stateDir, k.dir)
	return err
}

// carried is how many flows the kernel carries.
func (in *instance) carried() (n int) {
	if in.kernel.offloader.Load() == nil {
		return 0
	}
	for _, rec := range in.registry.Records() {
		if rec.View().Path != flow.PathUserspace {
			n++
		}
	}
	return n
}

// prepareKernelPath is the first half of making the instance able to hand flows over,
// if this host can. Flows of another version that live in the kernel are refused:
// nobody would look after them.
func (in *instance) prepareKernelPath(config *file.Config) error {
	err := in.kernel.prepare(in.o.stateDir, in.o.xdp, portsOf(config), in.log)
	if errors.Is(err, bpf.ErrIncompatible) {
		return err
	}
	if err != nil {
		in.noKernelPath(config, err)
	}
	return nil
}

// openKernelPath is the other half, when no other process has it any more.
func (in *instance) openKernelPath(config *file.Config) {
	if in.kernel.none.Load() {
		return
	}
	err := in.kernel.open(kernelPathOptions{
		registry: in.registry, metrics: in.metrics, stateDir: in.o.stateDir, log: in.log,
		ports:   portsOf(config),
		adopted: func(rec *flow.Record, frontend netip.AddrPort) { in.relay.Adopt(rec, frontend) },
	})
	if err != nil {
		in.noKernelPath(config, err)
		return
	}
	in.openSteer(config.Source.Addresses)
	in.kernel.run(in.ctx, in)
}

func portsOf(config *file.Config) offload.PortParams {
	return offload.PortParams{First: config.Source.Ports.Lo, Last: config.Source.Ports.Hi, Addresses: config.Source.Addresses}
}

// noKernelPath says that every flow stays in userspace, louder when somebody counts
// on something else.
func (in *instance) noKernelPath(config *file.Config, err error) {
	err = errors.Join(err, in.kernel.giveUp(in.o.stateDir))
	level, wanting := slog.LevelInfo, []string(nil)
	for _, s := range config.Services {
		if s.Offload.Mode == lb.OffloadAlways || s.Offload.Path == lb.OffloadPathBPF {
			level, wanting = slog.LevelError, append(wanting, s.Name)
		}
	}
	args := []any{"err", err}
	if len(wanting) > 0 {
		args = append(args, "wanted by", wanting)
	}
	in.log.Log(context.Background(), level, "this host has no kernel path: every flow stays in userspace (see baton doctor)", args...)
}

// attachToDevices has the programs on every device before anything is served. After an
// upgrade those of the process before are there yet, and are replaced in passing.
func (in *instance) attachToDevices() {
	if in.kernel.offloader.Load() == nil {
		return
	}
	if err := in.kernel.flows.AttachAll(); err != nil {
		in.log.Warn("not every device carries offloaded flows", "err", err)
	}
}

// tellKernelPath says what is in force.
func (in *instance) tellKernelPath() {
	if in.kernel.offloader.Load() == nil {
		return
	}
	var devices []string
	for _, d := range in.kernel.flows.Devices() {
		devices = append(devices, d.String())
	}
	in.log.Info("flows can be handed to the kernel", "path", flow.PathBPF, "devices", devices, "pinned", in.kernel.dir,
		"adopted", in.carried())
}

// adoptKernelFlows goes on with the flows of an earlier process.
func (in *instance) adoptKernelFlows() {
	if o := in.kernel.offloader.Load(); o != nil {
		o.Adopt()
		in.relay.Keep(o.Kept())
	}
	in.registerSteer()
}

// removeKernelPath takes everything out of the kernel that belongs to offloaded
// flows, which end with it, and says what that was. dir is where it is pinned; "" =
// nowhere.
func removeKernelPath(stateDir, dir string) (did []string, err error) {
	did, err = bpf.RemoveFlows(dir)
	ports, portsErr := offload.ReleasePorts(stateDir)
	if ports != "" {
		did = append(did, "sysctl net.ipv4.ip_local_reserved_ports freed of "+ports)
	}
	unmounted, mountErr := bpf.UnmountBPFFS(stateDir)
	if unmounted {
		did = append(did, "bpffs "+stateDir+"/bpf")
	}
	if err = errors.Join(err, portsErr, mountErr); err != nil {
		return did, fmt.Errorf("remove offloaded flows: %w", err)
	}
	return did, nil
}

var _ admin.Handoffs = (*relay.Relay)(nil)
