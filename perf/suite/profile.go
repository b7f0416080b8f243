package suite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/baton-lb/baton/perf/mode"
	"github.com/baton-lb/baton/perf/workload"
)

// profileAll takes a profile of each cell whose mode has profiles. Its figures are
// not kept: to be profiled costs time.
func (s *suite) profileAll(ctx context.Context) error {
	for _, m := range s.modes {
		for _, w := range s.Workloads {
			if !m.Carries(w.Spec().Service.Proto) {
				continue
			}
			if err := s.profile(ctx, m, w); err != nil {
				return fmt.Errorf("of %s at %s: %w", m.Name(), w.Spec().Name, err)
			}
		}
	}
	return nil
}

func (s *suite) profile(ctx context.Context, m mode.Mode, w workload.Workload) (err error) {
	st, err := s.open(ctx, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	profiler, ok := st.running.(mode.Profiler)
	if !ok {
		return nil
	}
	out, err := s.Profile(m.Name(), w.Spec().Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	var taking sync.WaitGroup
	var untaken error
	_, err = s.run(ctx, st, w, func() {
		taking.Go(func() { untaken = profiler.Profile(ctx, s.Duration, out) })
	})
	taking.Wait()
	return errors.Join(err, untaken)
}
