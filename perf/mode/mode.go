package mode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/perf/topology"
)

// ErrUnavailable is wrapped when this machine lacks what a mode needs.
var ErrUnavailable = errors.New("not available here")

// Mode is a way from the client to a backend.
type Mode interface {
	// Name is one word.
	Name() string
	// Version says what would run. It may wrap ErrUnavailable.
	Version(ctx context.Context) (string, error)
	// Carries says whether the mode knows a protocol.
	Carries(p flow.Proto) bool
	// Start makes the hosts go this way. They go no other before Close.
	Start(ctx context.Context, h *topology.Hosts) (Running, error)
}

// Running is a mode on hosts.
type Running interface {
	// Target is where connection or socket i of a client goes.
	Target(s topology.Service, i int) netip.AddrPort
	// Shows is who backends see: the client, or the balancer's addresses.
	Shows() []netip.Addr
	// Processes is the ids of the processes that carry traffic; the kernel has none.
	Processes() []int
	// Count reads the mode's own counters.
	Count(ctx context.Context) (Counts, error)
	// Close ends the mode and its processes.
	Close() error
}

// Profiler is a Running whose CPU profile can be taken.
type Profiler interface {
	// Profile writes a profile of the next d, in pprof's format.
	Profile(ctx context.Context, d time.Duration, w io.Writer) error
}

// Lasting is a Mode that takes flows over while they live, and so is not for those
// that have one request.
type Lasting interface{ Lasting() bool }

// Options says what of this machine the modes may use.
type Options struct {
	Baton       string      // path of the binary; "" = no mode of Baton's
	Also        []BatonSpec // further binaries, each a mode
	CPUs        int         // workers of a proxy; 0 = one for each CPU
	Connections int         // that proxies must be able to hold; 0 = 1,000
}

// All is every mode, in the order of reports.
func All(o Options) []Mode {
	modes := []Mode{Direct{}, NFTables{}}
	if o.Baton != "" {
		modes = append(modes, NewBaton(BatonSpec{Name: "baton", Path: o.Baton}),
			NewBaton(BatonSpec{Name: "baton-bpf", Path: o.Baton, Offload: true}),
			NewBaton(BatonSpec{Name: "baton-steer", Path: o.Baton, Steer: true}))
	}
	for _, spec := range o.Also {
		modes = append(modes, NewBaton(spec))
	}
	return append(modes, NewHAProxy(o), NewNginx(o, false), NewNginx(o, true))
}

// find is the path of a program, also where only root looks.
func find(program, debianPackage string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if _, err := os.Stat(dir + program); err == nil {
			return dir + program, nil
		}
	}
	return "", fmt.Errorf("%s: %w: install the package %s", program, ErrUnavailable, debianPackage)
}
