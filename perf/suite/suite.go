package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/baton-lb/baton/perf/load"
	"github.com/baton-lb/baton/perf/mode"
	"github.com/baton-lb/baton/perf/proc"
	"github.com/baton-lb/baton/perf/report"
	"github.com/baton-lb/baton/perf/topology"
	"github.com/baton-lb/baton/perf/workload"
)

// Plan is what to run.
type Plan struct {
	Topology  topology.Topology
	Modes     []mode.Mode
	Workloads []workload.Workload
	Rounds    int
	Duration  time.Duration // of the measured part of a cell

	// Profile, if set, gives each cell of a mode that has profiles one more turn,
	// after the rounds and without figures, and is where its CPU profile goes.
	Profile func(mode, workload string) (io.WriteCloser, error)

	// Progress is told of every cell as it ends; nil = nobody listens.
	Progress func(report.Cell)
}

// Run measures. Cells that fail are in the report; an error is what ended the run
// before its time, and the report then has what was measured until there.
func Run(ctx context.Context, p Plan) (*report.Report, error) {
	s := &suite{Plan: p, report: &report.Report{
		Began: time.Now(), Machine: proc.ThisMachine(), Topology: p.Topology.Name(), Rounds: p.Rounds, Duration: p.Duration,
	}}
	for _, w := range p.Workloads {
		s.report.Workloads = append(s.report.Workloads, describe(w.Spec()))
	}
	if err := s.findModes(ctx); err != nil {
		return s.report, err
	}
	defer func() { s.report.Took = time.Since(s.report.Began) }()
	for round := range p.Rounds {
		if err := s.round(ctx, round); err != nil {
			return s.report, fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	if p.Profile != nil {
		if err := s.profileAll(ctx); err != nil {
			return s.report, fmt.Errorf("take profiles: %w", err)
		}
	}
	return s.report, nil
}

type suite struct {
	Plan
	report *report.Report
	modes  []mode.Mode // those that are available
}

// findModes asks every mode whether it is there.
func (s *suite) findModes(ctx context.Context) error {
	for _, m := range s.Modes {
		version, err := m.Version(ctx)
		switch {
		case errors.Is(err, mode.ErrUnavailable):
			s.report.Modes = append(s.report.Modes, report.Mode{Name: m.Name(), Unavailable: err.Error()})
			continue
		case err != nil:
			return err
		}
		s.report.Modes = append(s.report.Modes, report.Mode{Name: m.Name(), Version: version})
		s.modes = append(s.modes, m)
	}
	return nil
}

// The keys of the figures that every workload has.
const (
	cpuProcess = "cpu_process"
	cpuMachine = "cpu_machine"
)

func describe(s workload.Spec) report.Workload {
	figures := append([]report.Figure{}, s.Figures...)
	return report.Workload{Name: s.Name, About: s.About, Figures: append(figures,
		report.Figure{Key: cpuProcess, Unit: s.Cost.Unit, Lower: true},
		report.Figure{Key: cpuMachine, Unit: s.Cost.Unit, Lower: true})}
}

// suits says whether a mode can have the workload at all.
func suits(m mode.Mode, running mode.Running, s workload.Spec) bool {
	if !m.Carries(s.Service.Proto) {
		return false
	}
	if l, ok := m.(mode.Lasting); ok && l.Lasting() && s.Brief {
		return false
	}
	return !s.NeedsProcess || len(running.Processes()) > 0
}

// round measures every cell once.
func (s *suite) round(ctx context.Context, round int) (err error) {
	var stands []*stand
	defer func() {
		for _, st := range stands {
			err = errors.Join(err, st.close())
		}
	}()
	for _, m := range rotate(s.modes, round) {
		st, err := s.open(ctx, m)
		if err != nil {
			if err := s.notStarted(ctx, round, m, err); err != nil {
				return err
			}
			continue
		}
		stands = append(stands, st)
	}
	for _, w := range s.Workloads {
		for _, st := range stands {
			if !suits(st.mode, st.running, w.Spec()) {
				continue
			}
			if err := s.cell(ctx, round, st, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// rotate begins the list at element n, modulo its length.
func rotate[T any](list []T, n int) []T {
	if len(list) == 0 {
		return nil
	}
	n %= len(list)
	return append(append([]T{}, list[n:]...), list[:n]...)
}

// cell measures one cell. Only the end of the run is an error.
func (s *suite) cell(ctx context.Context, round int, st *stand, w workload.Workload) error {
	c := report.Cell{Round: round, Workload: w.Spec().Name, Mode: st.mode.Name()}
	r, err := s.measure(ctx, st, w)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		c.Error = err.Error()
	default:
		fill(&c, w.Spec(), r, st)
	}
	s.add(c)
	return nil
}

// notStarted makes errors of the cells of a mode that did not start.
func (s *suite) notStarted(ctx context.Context, round int, m mode.Mode, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, w := range s.Workloads {
		if m.Carries(w.Spec().Service.Proto) {
			s.add(report.Cell{Round: round, Workload: w.Spec().Name, Mode: m.Name(), Error: err.Error()})
		}
	}
	return nil
}

func (s *suite) add(c report.Cell) {
	s.report.Cells = append(s.report.Cells, c)
	if s.Progress != nil {
		s.Progress(c)
	}
}

// fill makes figures of a result.
func fill(c *report.Cell, spec workload.Spec, r workload.Result, st *stand) {
	c.Values = make(map[string]float64, len(r.Values)+2)
	for k, v := range r.Values {
		c.Values[k] = v
	}
	per := spec.Cost.Scale / r.Work
	if len(st.running.Processes()) > 0 {
		c.Values[cpuProcess] = r.Used.Processes.Seconds() * per
	}
	c.Values[cpuMachine] = r.Used.Machine.Seconds() * per
	c.Busy = r.Used.Machine
	c.Other = r.Used.Machine - r.Used.Processes - r.Used.Load
}

// measure runs a workload and checks which way its traffic went.
func (s *suite) measure(ctx context.Context, st *stand, w workload.Workload) (workload.Result, error) {
	if w.Spec().NeedsFresh {
		fresh, err := s.open(ctx, st.mode)
		if err != nil {
			return workload.Result{}, err
		}
		r, err := s.run(ctx, fresh, w, nil)
		return r, errors.Join(err, fresh.close())
	}
	return s.run(ctx, st, w, nil)
}

func (s *suite) run(ctx context.Context, st *stand, w workload.Workload, measuring func()) (r workload.Result, err error) {
	defer load.Quiet()()
	before, err := st.running.Count(ctx)
	if err != nil {
		return r, err
	}
	r, err = w.Run(ctx, &workload.Cell{
		Hosts: st.hosts, Target: st.running.Target, Processes: st.running.Processes(), Duration: s.Duration, Measuring: measuring,
	})
	if err != nil {
		return r, err
	}
	return r, check(ctx, st.running, before, r)
}
