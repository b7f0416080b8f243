package file

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/baton-lb/baton/lb"
)

// Sink takes the services of the file: a *store.Source.
type Sink interface {
	Replace([]lb.Service) error // all or nothing
	Synced()
}

// Options of a Source. The zero value works.
type Options struct {
	Watch WatchOptions
	Log   *slog.Logger // nil = nothing is logged

	// Applied is called when content has been taken or refused, the first one aside. nil = not.
	Applied func()
}

// Source keeps a sink as the file says.
type Source struct {
	running *Config // whose settings outside services are in force
	sink    Sink
	log     *slog.Logger
	applied func()
	watcher *Watcher

	mu     sync.Mutex // guards what follows
	status Status
}

// Status is what became of the file, for doctor, metrics and readiness.
type Status struct {
	File          string
	Services      int       // of the last content that was taken
	Loaded        time.Time // when that was
	Loads         uint64    // contents taken, the first one included
	Failures      uint64    // contents refused, and times when it could not be read
	Failed        time.Time // the last failure; zero = none yet
	Err           error     // why what runs is not what the file says; nil = it is
	RestartNeeded []string  // keys that differ from what runs until a restart
}

// NewSource hands the services of a loaded file to the sink and says that they
// are all. Its error is the sink's refusal. Run keeps them up to date.
func NewSource(first *Config, sink Sink, o Options) (*Source, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Watch.Log == nil {
		o.Watch.Log = o.Log
	}
	if o.Applied == nil {
		o.Applied = func() {}
	}
	if err := sink.Replace(first.Services); err != nil {
		return nil, err
	}
	sink.Synced()
	return &Source{
		running: first, sink: sink, log: o.Log, applied: o.Applied, watcher: NewWatcher(first.File, first, o.Watch),
		status: Status{File: first.File, Services: len(first.Services), Loaded: time.Now(), Loads: 1},
	}, nil
}

// Run applies changes of the file until ctx ends. What cannot be applied changes
// nothing.
func (s *Source) Run(ctx context.Context) { s.watcher.Run(ctx, s.apply) }

// Reload applies the file now, changed or not (SIGHUP). It does not wait.
func (s *Source) Reload() { s.watcher.Reload() }

// Status is what became of the file so far.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	st.RestartNeeded = slices.Clone(st.RestartNeeded)
	return st
}

func (s *Source) apply(c *Config, err error) {
	defer s.applied()
	if err == nil {
		err = s.sink.Replace(c.Services)
	}
	if err != nil {
		s.failed(err)
		return
	}
	restart := s.running.RestartNeeded(c)
	s.mu.Lock()
	s.status.Services, s.status.Loaded, s.status.Err = len(c.Services), time.Now(), nil
	s.status.Loads++
	s.status.RestartNeeded = restart
	s.mu.Unlock()
	s.log.Info("configuration loaded", "file", c.File, "services", len(c.Services))
	if len(restart) > 0 {
		s.log.Warn("configuration changed where only a restart puts it in force: "+strings.Join(restart, ", "), "file", c.File)
	}
}

func (s *Source) failed(err error) {
	s.mu.Lock()
	s.status.Failed, s.status.Err = time.Now(), err
	s.status.Failures++
	s.mu.Unlock()
	s.log.Error("configuration not loaded: what runs stays as it is", "file", s.running.File, "err", Summary(err))
}
