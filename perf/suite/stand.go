package suite

import (
	"context"
	"errors"
	"fmt"

	"github.com/baton-lb/baton/perf/mode"
	"github.com/baton-lb/baton/perf/topology"
)

// stand is a mode that runs on hosts of its own.
type stand struct {
	mode    mode.Mode
	hosts   *topology.Hosts
	running mode.Running
}

func (s *suite) open(ctx context.Context, m mode.Mode) (*stand, error) {
	hosts, err := s.Topology.Build(ctx)
	if err != nil {
		return nil, err
	}
	running, err := m.Start(ctx, hosts)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", m.Name(), errors.Join(err, hosts.Close()))
	}
	return &stand{m, hosts, running}, nil
}

func (st *stand) close() error {
	if err := errors.Join(st.running.Close(), st.hosts.Close()); err != nil {
		return fmt.Errorf("end %s: %w", st.mode.Name(), err)
	}
	return nil
}
