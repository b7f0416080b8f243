package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/flow"
)

// runOptions are the flags of `baton run`.
type runOptions struct {
	config      string
	socket      string // "" = as the file says
	stateDir    string
	logLevel    string
	logFormat   string
	flowsOnExit string
	exitTimeout time.Duration
	await       time.Duration // for a next process, before a stop; 0 = not
	accessLog   bool
	xdp         bool
	upgrade     bool
	kube        kubeOptions

	notify  *notifier // the service manager; nil = none
	release func()    // lets what is logged be seen though the start is not over
}

// source is what the services are read from, as the log and other instances call it.
func (o *runOptions) source() string {
	switch {
	case o.kube.objects != "":
		return absolute(o.kube.objects)
	case o.kube.api:
		return "the API server"
	}
	return absolute(o.config)
}

func newRunCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run --config FILE | --kubernetes | --kube-objects FILE",
		Short: "Balance: serve what a file or a cluster says until stopped",
		Long: `Serve the services of a file. The file is watched; a change, or SIGHUP, applies
it when it is valid, and running flows are not touched. SIGTERM stops listening,
waits for the flows to end, and resets those that are left after --exit-timeout;
a second signal does not wait.

With --kubernetes it serves the Services of a cluster on this node, in place of
kube-proxy; with --kube-objects those of a dump of one. An object that is faulty
is reported by name, and every other one served.

With --upgrade it takes over from the instance
that runs: no new connection fails, that one's open flows have its --exit-timeout
to end there, and then it exits. When that does not work that one goes on, and
this one exits with 1.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := o.logger(cmd.ErrOrStderr())
			if err == nil {
				err = o.check()
			}
			if err != nil {
				return badUsage(cmd, err)
			}
			return run(cmd.Context(), o, log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "the file to serve (baton.yaml); with --kubernetes a KubeProxyConfiguration")
	f.StringVar(&o.socket, "socket", "", "admin socket (default: admin.socket of the file)")
	f.StringVar(&o.stateDir, "state-dir", defaultStateDir, "where state is kept that outlives the process")
	f.StringVar(&o.logLevel, "log-level", "info", "debug | info | warn | error")
	f.StringVar(&o.logFormat, "log-format", "text", "text | json")
	f.StringVar(&o.flowsOnExit, "flows-on-exit", "keep", "what a stop does to flows: keep (those in the kernel live on, the others drain) | drain | reset")
	f.DurationVar(&o.exitTimeout, "exit-timeout", 30*time.Second, "how long a stop waits for flows to end")
	f.DurationVar(&o.await, "await-successor", 0, "how long a stop goes on serving first, for the next process to take over with --upgrade (0 = not at all)")
	f.BoolVar(&o.upgrade, "upgrade", false, "take over from the instance that runs in this network namespace, if there is one")
	f.BoolVar(&o.accessLog, "access-log", false, "log a line for each flow that ends")
	f.BoolVar(&o.xdp, "xdp", false, "forward offloaded flows in XDP too, on network cards whose driver has it (some restart their queues for that)")
	o.kube.register(f)
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	_ = cmd.MarkFlagFilename("kubeconfig")
	_ = cmd.MarkFlagFilename("kube-objects", "yaml", "yml", "json")
	return cmd
}

func (o *runOptions) check() error {
	if err := o.kube.check(o.config); err != nil {
		return err
	}
	switch {
	case o.flowsOnExit != "keep" && o.flowsOnExit != "drain" && o.flowsOnExit != "reset":
		return fmt.Errorf("--flows-on-exit %q: use keep, drain or reset", o.flowsOnExit)
	case o.exitTimeout < 0:
		return fmt.Errorf("--exit-timeout %s is negative", o.exitTimeout)
	case o.await < 0:
		return fmt.Errorf("--await-successor %s is negative", o.await)
	}
	return nil
}

func (o *runOptions) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", o.logLevel)
	}
	h := &slog.HandlerOptions{Level: level}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, h)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, h)), nil
	}
	return nil, fmt.Errorf("--log-format %q: use text or json", o.logFormat)
}

// run serves until a signal stops it. What is logged while it starts is seen
// once it serves: a start that fails says why once, as its error.
func run(ctx context.Context, o runOptions, log *slog.Logger) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	notify, err := openNotifier()
	if err != nil {
		log.Warn("the service manager hears nothing", "err", err)
	}
	defer notify.Close()
	o.notify = notify
	log, o.release = holdLog(ctx, log)
	starting, started := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	in, err := startInstance(starting, o, log)
	stopped := starting.Err() != nil && ctx.Err() == nil
	started()
	if err != nil && stopped {
		log.Info("stopped while starting", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	o.release()
	defer notify.watch(in.lifecycle.Live)()
	notify.ready()
	counts := in.store.Snapshot().Counts()
	log.Info("serving", "services", counts.Services, "frontends", counts.Frontends, "backends", counts.Backends,
		"config", in.o.source(), "socket", in.o.socket, "pid", os.Getpid())
	var waited <-chan time.Time // for the next process, in vain; nil = nobody waits
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGHUP {
				notify.reloading()
				in.source.Reload()
				continue
			}
			if in.o.await > 0 && waited == nil {
				log.Info("stopping soon: the next process may take over first", "signal", s.String(), "within", in.o.await)
				waited = time.After(in.o.await)
				continue
			}
			log.Info("stopping", "signal", s.String(), "flows", in.relay.Flows())
		case <-waited:
			if in.handing.isUnderWay() {
				waited = time.After(time.Second)
				continue
			}
			log.Info("stopping: no other process has taken over", "flows", in.relay.Flows())
		case <-in.handing.done:
			if in.objects != nil {
				in.objects.Mute()
			}
			in.log.Info("handed over: the flows that are open here have time to end", "flows", in.relay.Flows(),
				"timeout", in.o.exitTimeout, "socket", in.aside)
			in.admin.WaitTCP()
			return in.drain(signals, flow.ReasonDrainTimeout, in.o.exitTimeout)
		case <-ctx.Done():
		}
		return in.shutdown(signals)
	}
}

// shutdown stops listening, gives the flows their time, and says who is left.
func (in *instance) shutdown(signals <-chan os.Signal) error {
	in.handing.abort()
	if in.o.flowsOnExit == "reset" {
		return in.drain(signals, flow.ReasonShutdown, 0)
	}
	return in.drain(signals, flow.ReasonDrainTimeout, in.o.exitTimeout)
}

// drain waits for the flows to end, resets what is left, and stops. Of the signals that
// ask for a stop the first lets flows have their time; after a handover it is still to
// come, from whoever looks after the old process.
func (in *instance) drain(signals <-chan os.Signal, reason flow.Reason, timeout time.Duration) error {
	in.o.notify.stopping()
	in.lifecycle.SetDraining()
	asked := !in.handing.isDone()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	go func() { // a second signal does not wait; SIGHUP means nothing any more
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-signals:
				switch {
				case s == syscall.SIGHUP:
				case asked:
					cancel()
				default:
					asked = true
					in.log.Info("flows have their time already: another signal ends them", "signal", s.String())
				}
			}
		}
	}()
	left := in.relay.Drain(ctx)
	if in.endsCarried() {
		in.endCarried(ctx, reason)
	}
	if left > 0 {
		in.reportLeft(left, flow.PathUserspace)
		in.relay.ResetAll(reason)
	}
	if n := in.carried(); n > 0 {
		in.log.Info("flows live on in the kernel: the next start goes on with them, `baton cleanup` ends them", "flows", n)
	}
	err := in.close()
	in.log.Info("stopped")
	return err
}

// endsCarried reports whether the flows that the kernel carries end with the
// process.
func (in *instance) endsCarried() bool { return in.o.flowsOnExit != "keep" && !in.handing.isDone() }

// endCarried waits until the connections that the kernel carries have ended, and
// ends what is left of them, and all UDP sessions: those have no end of their own.
func (in *instance) endCarried(ctx context.Context, reason flow.Reason) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for in.carriedConnections() > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	if n := in.carriedConnections(); n > 0 {
		in.reportLeft(n, flow.PathBPF)
	}
	for _, rec := range in.registry.Records() {
		if rec.View().Path != flow.PathUserspace {
			rec.End(flow.ByBaton, reason)
		}
	}
	until := time.NewTimer(endWait)
	defer until.Stop()
	for in.carried() > 0 {
		select {
		case <-until.C:
			return
		case <-tick.C:
		}
	}
}

// endWait is how long flows that are being ended are waited for.
const endWait = 2 * time.Second

// carriedConnections is how many TCP flows the kernel carries.
func (in *instance) carriedConnections() (n int) {
	for _, rec := range in.registry.Records() {
		if v := rec.View(); v.Path != flow.PathUserspace && v.Protocol == flow.TCP {
			n++
		}
	}
	return n
}

// reportedFlows is how many of the flows that are left are named one by one.
const reportedFlows = 20

// reportLeft names the flows of a path that are about to be reset.
func (in *instance) reportLeft(left int, path flow.PathName) {
	in.log.Warn("flows are left and will be reset", "flows", left, "path", path)
	named := 0
	for _, rec := range in.registry.Records() {
		v := rec.View()
		if v.Path != path {
			continue
		}
		if named == reportedFlows {
			in.log.Warn("and more", "flows", left-named)
			return
		}
		named++
		in.log.Warn("left", "flow", v.ID, "svc", v.Service, "client", v.Client, "backend", v.Backend, "state", v.State)
	}
}
