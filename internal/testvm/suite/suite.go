package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/baton-lb/baton/internal/testvm"
)

// Suite is a list and where to run it.
type Suite struct {
	List    []Selection
	Kernels []string
	Only    string // packages whose path contains this; default: all

	Module string        // directory of the module; default: the working directory
	Tools  []string      // programs that tests start
	Time   time.Duration // for one package; default 10 minutes
	Out    io.Writer     // the summary, as it grows
	All    io.Writer     // everything that the tests write; default: nothing
	Log    *slog.Logger
}

// ErrFailed says that tests failed, or did not run. What and why is on Out.
var ErrFailed = errors.New("tests failed")

const (
	packageTime = 10 * time.Minute
	bootTime    = 2 * time.Minute // beside the packages' own
)

// Run builds the test programs once, and runs them on each kernel.
func (s Suite) Run(ctx context.Context) error {
	if s.Module == "" {
		s.Module = "."
	}
	if s.Time == 0 {
		s.Time = packageTime
	}
	s.narrow()
	if len(s.List) == 0 {
		return fmt.Errorf("%w: the list has no test", ErrFailed)
	}
	dir, err := os.MkdirTemp("", "baton-testvm-")
	if err != nil {
		return fmt.Errorf("make directory for test programs: %w", err)
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	programs, err := s.build(ctx, dir, packages(s.List))
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "built %d test programs in %.1fs\n", len(programs), time.Since(began).Seconds())

	sum := sums{}
	for _, kernel := range s.Kernels {
		if err := s.on(ctx, kernel, programs, &sum); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.Out, "test-vm: %d passed, %d failed, %d skipped\n", sum.passed, sum.failed, sum.skipped)
	if len(sum.faults) > 0 {
		return fmt.Errorf("%w:\n\t%s", ErrFailed, strings.Join(sum.faults, "\n\t"))
	}
	return nil
}

// narrow keeps only what was asked for.
func (s *Suite) narrow() {
	var list []Selection
	for _, l := range s.List {
		if strings.Contains(l.Package, s.Only) {
			list = append(list, l)
		}
	}
	s.List = list
}

// sums are over all kernels.
type sums struct {
	passed, failed, skipped int
	faults                  []string
}

func (u *sums) add(o Outcome) {
	u.passed += o.count("pass")
	u.failed += o.count("fail") + o.count("run")
	u.skipped += o.count("skip")
	if o.Failed() {
		u.faults = append(u.faults, fmt.Sprintf("linux %s: %s", o.Kernel, o.Package))
	}
}

// on runs what is for one kernel in one machine. A machine that ends early is a
// fault of the tests, which go on with the next kernel.
func (s Suite) on(ctx context.Context, kernel string, programs []program, sum *sums) error {
	began := time.Now()
	r := &run{suite: s, ctx: ctx, kernel: kernel}
	var mine []program
	for _, p := range programs {
		if c, ok := r.command(p); ok {
			mine, r.commands = append(mine, p), append(r.commands, c)
		}
	}
	if len(mine) == 0 {
		return nil
	}
	statuses, err := testvm.Run(ctx, testvm.Spec{
		Kernel: kernel, Commands: r.commands, Files: s.files(mine), Tools: s.Tools,
		Timeout: bootTime + time.Duration(len(mine))*s.Time, Log: s.Log,
	})
	if err != nil && !errors.Is(err, testvm.ErrDied) && !errors.Is(err, testvm.ErrTimeout) {
		return err
	}
	if err != nil {
		r.end(mine[len(statuses)].pkg, testvm.Status{}, "the machine ended: "+err.Error())
	}
	for _, o := range r.outcomes {
		sum.add(o)
	}
	for _, m := range unmet(s.List, kernel, r.outcomes) {
		fmt.Fprintf(s.Out, "FAIL\t%s\t%s: no such test has run\n", kernel, m)
		sum.faults = append(sum.faults, fmt.Sprintf("linux %s: %s: no such test has run", kernel, m))
	}
	fmt.Fprintf(s.Out, "linux %s: %d packages in %.1fs\n", kernel, len(r.outcomes), time.Since(began).Seconds())
	return nil
}

// run is one kernel's.
type run struct {
	suite    Suite
	ctx      context.Context
	kernel   string
	commands []testvm.Command
	output   bytes.Buffer // of the package whose tests run
	outcomes []Outcome
}

// command is what runs a package's tests, if there are any for this kernel.
func (r *run) command(p program) (testvm.Command, bool) {
	var here []Selection
	for _, l := range r.suite.List {
		if l.Package == p.pkg && l.On(r.kernel) {
			here = append(here, l)
		}
	}
	if len(here) == 0 {
		return testvm.Command{}, false
	}
	var out io.Writer = &r.output
	if r.suite.All != nil {
		out = io.MultiWriter(&r.output, r.suite.All)
	}
	time := r.suite.Time
	return testvm.Command{
		Args: []string{p.guestPath(), "-test.v=test2json", "-test.count=1", "-test.timeout=" + (time * 9 / 10).String(),
			"-test.run=" + runPattern(here, p.pkg)},
		Env:     []string{"BATON_VM=1", batonEnv + "=" + batonPath, "CI=true"},
		Dir:     p.guestDir(),
		Timeout: time,
		Stdout:  out, Stderr: out,
		Ended: func(st testvm.Status) { r.end(p.pkg, st, fault(st)) },
	}, true
}

// fault is what a status says beyond single tests.
func fault(st testvm.Status) string {
	switch {
	case st.TimedOut:
		return "killed for taking too long"
	case st.Code != 0:
		return fmt.Sprintf("exit status %d", st.Code)
	}
	return ""
}

// end sums up a package.
func (r *run) end(pkg string, st testvm.Status, fault string) {
	o := Outcome{Kernel: r.kernel, Package: pkg, Elapsed: st.Elapsed, Fault: fault}
	if err := o.read(r.ctx, r.output.Bytes()); err != nil {
		o.Fault = strings.TrimPrefix(o.Fault+"; "+err.Error(), "; ")
	}
	r.output.Reset()
	r.outcomes = append(r.outcomes, o)
	fmt.Fprintln(r.suite.Out, o)
	fmt.Fprintf(r.suite.Out, "    \tslowest:%s\n", o.slowest(5))
	if o.Failed() || o.count("skip") > 0 {
		fmt.Fprint(r.suite.Out, o.Output)
	}
}
