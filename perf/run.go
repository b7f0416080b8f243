package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/perf/mode"
	"github.com/baton-lb/baton/perf/report"
	"github.com/baton-lb/baton/perf/suite"
	"github.com/baton-lb/baton/perf/topology"
	"github.com/baton-lb/baton/perf/workload"
)

// run measures, or reads what was measured, and shows it.
func (o *options) run(ctx context.Context) error {
	if o.from != "" {
		r, err := readReport(filepath.Join(o.from, "report.json"))
		if err != nil {
			return err
		}
		o.out = o.from
		return o.show(r)
	}
	r, err := o.measure(ctx)
	if r == nil {
		return err
	}
	if saved := o.save(r); saved != nil {
		return errors.Join(err, saved)
	}
	if err != nil {
		return err
	}
	if err := o.show(r); err != nil {
		return err
	}
	if n := len(r.Failed()); n > 0 {
		return fmt.Errorf("%d cells of %d have no figures", n, len(r.Cells))
	}
	return nil
}

// measure runs the suite. The report is nil when nothing was measured.
func (o *options) measure(ctx context.Context) (*report.Report, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("network namespaces need root")
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory for the report: %w", err)
	}
	if o.baton == "" {
		path, remove, err := build(ctx)
		if err != nil {
			return nil, err
		}
		defer remove()
		o.baton = path
	}
	plan, err := o.plan()
	if err != nil {
		return nil, err
	}
	return suite.Run(ctx, plan)
}

// plan makes of the flags what is to be run.
func (o *options) plan() (p suite.Plan, err error) {
	sizes := workload.Sizes{Idle: idleConnections()}
	if o.quick {
		sizes = workload.Sizes{Datagrams: 2000, Idle: 200}
	}
	p = suite.Plan{Topology: topology.Star{IPv6: o.ipv6}, Rounds: o.rounds, Duration: o.duration, Progress: o.progress}
	all := mode.All(mode.Options{Baton: o.baton, Also: o.also, Connections: sizes.Idle})
	if p.Modes, err = selected("mode", o.modes, all, mode.Mode.Name); err != nil {
		return p, err
	}
	if p.Workloads, err = selected("workload", o.workloads, workload.All(sizes), workloadName); err != nil {
		return p, err
	}
	if o.profile {
		p.Profile = o.createProfile
	}
	return p, nil
}

// idleConnections is how many connections fit the descriptors of one process, which
// has both their ends; 9,000 at most.
func idleConnections() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(9000, max(100, (limit.Max-min(limit.Max, 2000))/2)))
}

// build builds the command as it is shipped: without the race detector, and static.
func build(ctx context.Context) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "baton-perf-")
	if err != nil {
		return "", nil, fmt.Errorf("make a directory: %w", err)
	}
	path = filepath.Join(dir, "baton")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/baton-lb/baton/cmd/baton")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", nil, fmt.Errorf("build baton: %w\n%s", err, out)
	}
	return path, func() { os.RemoveAll(dir) }, nil
}

// progress says what has just been measured.
func (o *options) progress(c report.Cell) {
	text := c.Error
	if text == "" {
		var parts []string
		for _, key := range []string{"rate", "lost", "memory", "p50", "p99", "cpu_process", "cpu_machine"} {
			if v, ok := c.Values[key]; ok {
				parts = append(parts, fmt.Sprintf("%s %.4g", key, v))
			}
		}
		text = strings.Join(parts, ", ")
	}
	fmt.Fprintf(o.stderr, "round %d  %-12s %-10s %s\n", c.Round+1, c.Workload, c.Mode, text)
}

func (o *options) createProfile(m, w string) (io.WriteCloser, error) {
	f, err := os.Create(filepath.Join(o.out, m+"-"+w+".pprof"))
	if err != nil {
		return nil, fmt.Errorf("make a profile: %w", err)
	}
	fmt.Fprintf(o.stderr, "profile  %-12s %-10s %s\n", w, m, f.Name())
	return f, nil
}

// save writes the report's JSON.
func (o *options) save(r *report.Report) error {
	return create(filepath.Join(o.out, "report.json"), r.Write)
}

// show writes the report for people, and into the document if there is one.
func (o *options) show(r *report.Report) error {
	references := strings.Split(o.references, ",")
	markdown := func(w io.Writer) error { return r.Markdown(w, references) }
	if err := create(filepath.Join(o.out, "report.md"), markdown); err != nil {
		return err
	}
	if o.update != "" {
		return r.Update(o.update, references)
	}
	return markdown(o.stdout)
}

func create(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return errors.Join(write(f), f.Close())
}

func readReport(path string) (*report.Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	defer f.Close()
	return report.Read(f)
}
