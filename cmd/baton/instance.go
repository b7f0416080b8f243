package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/health"
	"github.com/baton-lb/baton/lb/pick"
	"github.com/baton-lb/baton/lb/relay"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/source/file"
	"github.com/baton-lb/baton/lb/source/kube"
	"github.com/baton-lb/baton/lb/steer"
	"github.com/baton-lb/baton/lb/store"
)

// startTimeout bounds how long the first programming of everything may take.
const startTimeout = 30 * time.Second

// forgetEvery is how often memory of what is past is given back.
const forgetEvery = time.Minute

// instance is a running balancer: everything that `baton run` starts, in the
// order in which it must be stopped again.
type instance struct {
	o   runOptions
	log *slog.Logger

	lock     *admin.Lock
	access   *admin.AccessLog
	registry *flow.Registry
	store    *store.Store
	picker   *pick.Picker
	guard    *guard // nil = none, and noGuard says why
	noGuard  error
	metrics  *admin.Metrics
	kernel   kernelPath
	relay    *relay.Relay

	transparency *transparency
	health       *health.Checker
	nodePorts    *health.NodePorts
	admin        *admin.Server
	http         string // where admin serves on TCP
	source       source
	kube         *kubeSettings // nil = services come from a file of ours
	objects      *kube.Source  // is source then
	lifecycle    admin.Lifecycle

	before  *predecessor // from whom an upgrade takes over; nil = nobody
	handing handing
	aside   string // where the socket is after another process has taken over; "" = nowhere

	steer *steer.Steer // nil = nothing can be steered

	ctx     context.Context // of the goroutines below
	stop    context.CancelFunc
	running sync.WaitGroup
	closers []func() error // see close
}

// source is where services come from.
type source interface {
	Run(context.Context) // keeps the store as it says, until ctx ends
	Reload()             // reads it now; does not wait
}

var (
	_ source = (*file.Source)(nil)
	_ source = (*kube.Source)(nil)
)

// load reads what there is to be read before anything is started.
func (o *runOptions) load() (*kubeSettings, *file.Config, error) {
	if o.kube.on() {
		return o.kube.settings(o.config)
	}
	config, err := file.Load(o.config)
	return nil, config, err
}

// startInstance starts everything and waits until every frontend serves. On an
// error nothing is left behind.
func startInstance(ctx context.Context, o runOptions, log *slog.Logger) (_ *instance, err error) {
	settings, config, err := o.load()
	if err != nil {
		return nil, err
	}
	if o.socket == "" {
		o.socket = config.Admin.Socket
	}
	in := &instance{o: o, log: log, kube: settings, handing: handing{done: make(chan struct{})}}
	in.ctx, in.stop = context.WithCancel(context.Background())
	made := findNewDirs(o.stateDir, filepath.Dir(o.socket))
	defer func() {
		if err != nil {
			if in.before != nil {
				in.before.fail(err)
			}
			err = errors.Join(err, in.close())
			made.remove()
		}
	}()
	if err := in.acquire(ctx); err != nil {
		return nil, err
	}
	if err := in.build(config); err != nil {
		return nil, err
	}
	return in, in.serve(ctx, config)
}

// acquire takes what only one instance may have.
func (in *instance) acquire(ctx context.Context) (err error) {
	if err := os.MkdirAll(in.o.stateDir, 0o755); err != nil {
		return fmt.Errorf("make the state directory: %w; name another with --state-dir", err)
	}
	if in.o.upgrade {
		if in.before, err = in.awaitPredecessor(ctx); err != nil {
			return err
		}
	}
	if in.before != nil { // the lock comes last
		in.onClose(in.before.Close)
		return nil
	}
	in.lock, err = admin.AcquireLock(in.holder())
	if errors.Is(err, admin.ErrHeld) {
		return fmt.Errorf("%w: --upgrade takes over from it", err)
	}
	if err != nil {
		return err
	}
	in.onClose(in.lock.Close)
	return nil
}

func (in *instance) holder() admin.Holder {
	return admin.Holder{PID: os.Getpid(), Socket: absolute(in.o.socket), Config: in.o.source(), StateDir: absolute(in.o.stateDir)}
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// build makes the parts and connects them. Nothing is served yet.
func (in *instance) build(config *file.Config) (err error) {
	in.metrics = admin.NewMetrics()
	registry := flow.Options{}
	if in.o.accessLog {
		in.access = admin.NewAccessLog(admin.AccessLogOptions{Log: in.log})
		in.onClose(func() error { in.access.Close(); return nil })
		registry.OnEnded = in.access.OnEnded
	}
	in.registry = flow.NewRegistry(registry)
	in.picker = pick.New(pick.Options{})
	in.store = store.New(store.Options{Registry: in.registry, Zone: config.Zone, Log: in.log})
	in.store.OnProgrammed(func(r store.Round) { in.metrics.Programming.Observe(r.Duration) })
	if err := in.openKube(); err != nil {
		return err
	}
	mode, err := capture.ParseMode(string(config.Capture))
	if err != nil {
		return err
	}
	// Before any address is made local, and until none is any more.
	if err := in.attachGuard(mode); err != nil {
		return err
	}
	options := relay.Options{
		Store: in.store, Picker: in.picker, Registry: in.registry, Log: in.log,
		Capture: mode, NoGuard: in.noGuard, StateDir: in.o.stateDir, ObserveDial: in.metrics.Dial.Observe,
		Loops: eventLoops(), Offloader: &in.kernel,
		Source: relay.SourceParams{
			Addresses: config.Source.Addresses, FirstPort: config.Source.Ports.Lo, LastPort: config.Source.Ports.Hi,
		},
	}
	in.onClose(in.closeKernelPath)
	if err := in.prepareKernelPath(config); err != nil {
		return err
	}
	if in.before != nil { // which has the kernel path yet
		options.Inherit = in.before.inheritance()
	} else {
		in.openKernelPath(config)
		in.attachToDevices()
	}
	var drops func() map[flow.Drop]uint64
	if in.guard != nil {
		options.Guard, drops = in.guard, in.guard.drops
	}
	in.keepAddresses(&options)
	if in.relay, err = relay.New(options); err != nil {
		return err
	}
	in.onClose(in.relay.Close)
	in.adoptKernelFlows()
	in.health = health.New(health.Options{
		Store: in.store, Failing: in.registry.Failing(), Log: in.log,
		DialLocal: health.Local(config.Source.Addresses, 0, 0),
	})
	in.onClose(in.health.Close)
	in.store.Register(store.Backends, "health", in.health)
	in.nodePorts = health.NewNodePorts(health.NodePortOptions{Log: in.log, Listen: in.listenNodePort})
	in.onClose(in.nodePorts.Close)
	in.store.Register(store.Cleanup, "health check node ports", in.untilHandedOver(in.nodePorts))
	in.store.Register(store.Cleanup, "affinity", in.picker)
	in.http = config.Admin.HTTP
	tcp, err := in.before.listener(otherSocket{otherHTTP, in.http})
	if err != nil {
		return err
	}
	node, proxyMode, err := in.forKubernetesClients()
	if err != nil {
		return err
	}
	in.admin, err = admin.New(admin.Options{
		Socket: in.o.socket, HTTP: in.http, Aside: in.before != nil, TCP: tcp, Upgrade: in.handOver,
		Registry: in.registry, Store: in.store, Affinity: in.picker, Health: in.health, Handoffs: &handoffs{registry: in.registry, tcp: &in.kernel, udp: in.relay}, Metrics: in.metrics,
		Drops: in.kernel.dropsBeside(drops), Readiness: &in.lifecycle, Doctor: in.doctor, Instance: in.holder(), Version: version(), Log: in.log,
		Node: node, ProxyMode: proxyMode, Steers: func() bool { return in.steer != nil }, FewSeries: in.kube != nil && !in.o.kube.backends,
	})
	if err != nil {
		return err
	}
	in.onClose(in.admin.Close)
	return nil
}

// serve starts the loops, hands to the store what the source has, and waits until it
// has been programmed.
func (in *instance) serve(ctx context.Context, config *file.Config) (err error) {
	running := in.ctx
	if in.kube == nil {
		in.source, err = file.NewSource(config, in.store.Source("file"), file.Options{Log: in.log, Applied: in.o.notify.reloaded})
		if err != nil {
			return err
		}
	}
	if in.before != nil {
		for _, t := range in.before.drained() {
			_ = in.store.Drain(t) // what is not there any more needs none
		}
	}
	in.running.Go(func() {
		_ = in.store.Run(running)
		in.lifecycle.SetStuck()
	})
	in.running.Go(func() { _ = in.admin.Run(running) })
	in.running.Go(func() { in.source.Run(running) })
	in.running.Go(func() { in.forget(running) })

	if in.kube == nil || in.before != nil { // else there is nobody who could serve meanwhile
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, startTimeout)
		defer cancel()
	}
	if err := in.awaitObjects(ctx); err != nil {
		return err
	}
	if err := in.store.Programmed(ctx, in.store.Snapshot().Revision); err != nil {
		return fmt.Errorf("program the first configuration: %w", err)
	}
	if err := in.startFailures(config, in.store.Failures()); err != nil {
		return err
	}
	if in.before != nil {
		if err := in.takeOver(config); err != nil {
			return err
		}
	}
	in.tellKernelPath()
	in.lifecycle.SetReady()
	return nil
}

// startFailures says what could not be served at the start, with its line. What an
// object of a cluster asks for is no reason not to start: its failure is told, and
// tried again.
func (in *instance) startFailures(config *file.Config, failures []store.Failure) error {
	if in.kube != nil {
		return nil
	}
	var faults file.Faults
	for _, f := range failures {
		line, ok := config.Lines.Frontends[f.Frontend]
		if !ok {
			line = config.Lines.Services[f.Service]
		}
		message := fmt.Sprintf("service %s: ", f.Service)
		if ok {
			message += f.Frontend.String() + ": "
		}
		faults = append(faults, &file.Fault{File: config.File, Line: line, Message: message + f.Err.Error(), Err: f})
	}
	if len(faults) == 0 {
		return nil
	}
	return faults
}

// forget gives back the memory of what is past.
func (in *instance) forget(ctx context.Context) {
	tick := time.NewTicker(forgetEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			in.picker.Expire(now)
			snapshot := in.store.Snapshot()
			in.transparency.forget()
			in.registry.ForgetServices(func(service string) bool {
				_, ok := snapshot.Service(service)
				return ok
			})
			in.registry.ForgetDialFailures(func(service string, backend netip.AddrPort) bool {
				s, ok := snapshot.Service(service)
				if ok {
					_, ok = s.Backend(backend)
				}
				return ok
			})
		}
	}
}

// onClose notes how to undo what was just done.
func (in *instance) onClose(f func() error) { in.closers = append(in.closers, f) }

// close undoes everything, the last first. It may be called more than once.
func (in *instance) close() error {
	in.stop()
	in.running.Wait()
	var errs []error
	for len(in.closers) > 0 {
		last := len(in.closers) - 1
		errs = append(errs, in.closers[last]())
		in.closers = in.closers[:last]
	}
	return errors.Join(errs...)
}
