package file

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

var _ Sink = (*store.Source)(nil)

// fakeSink keeps what it is given and can refuse.
type fakeSink struct {
	mu       sync.Mutex
	names    []string
	replaced int
	synced   bool
	refuse   error
}

func (s *fakeSink) Replace(services []lb.Service) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return s.refuse
	}
	s.replaced++
	s.names = nil
	for _, svc := range services {
		s.names = append(s.names, svc.Name)
	}
	return nil
}

func (s *fakeSink) Synced() { s.synced = true }

func (s *fakeSink) has() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names)
}

func (s *fakeSink) setRefuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// sourced is a Source that runs until the test ends.
func sourced(t *testing.T, content string, sink Sink) (s *Source, path string, log *lockedBuffer) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "baton.yaml")
	write(t, path, content)
	cfg, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	log = &lockedBuffer{}
	s, err = NewSource(cfg, sink, Options{
		Watch: WatchOptions{Settle: 5 * time.Millisecond}, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s, path, log
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

func TestSourceReloads(t *testing.T) {
	sink := &fakeSink{}
	s, path, log := sourced(t, one(), sink)
	if !sink.synced || !slices.Equal(sink.has(), []string{"web"}) {
		t.Fatalf("after the start: %v, synced %v", sink.has(), sink.synced)
	}
	if st := s.Status(); st.Services != 1 || st.Loads != 1 || st.Err != nil || st.File != path || st.Loaded.IsZero() {
		t.Errorf("after the start: %+v", st)
	}

	replace(t, path, strings.Replace(one(), "web", "other", 1))
	eventually(t, "the new service", func() bool { return slices.Equal(sink.has(), []string{"other"}) })

	replace(t, path, "services:\n- name: 5\n- x\n- y\n")
	eventually(t, "a failure", func() bool { return s.Status().Failures == 1 })
	if got := sink.has(); !slices.Equal(got, []string{"other"}) {
		t.Errorf("a bad file changed the services: %v", got)
	}
	st := s.Status()
	if st.Services != 1 || st.Loads != 2 || st.Failed.IsZero() || !errors.As(st.Err, new(Faults)) {
		t.Errorf("after a bad file: %+v", st)
	}
	eventually(t, "one line in the log", func() bool {
		return strings.Count(log.String(), "level=ERROR") == 1 && strings.Contains(log.String(), "baton.yaml:2: services[0]: name: is a number, not text: put it in quotes (and 3 more faults)")
	})

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another failure", func() bool { return s.Status().Failures == 2 })

	write(t, path, one())
	eventually(t, "recovery", func() bool { return s.Status().Err == nil && slices.Equal(sink.has(), []string{"web"}) })
}

func TestSourceReloadOnDemand(t *testing.T) {
	sink := &fakeSink{}
	s, _, _ := sourced(t, one(), sink)
	s.Reload()
	eventually(t, "a second load", func() bool { return s.Status().Loads == 2 })
}

func TestSourceSinkRefuses(t *testing.T) {
	sink := &fakeSink{}
	s, path, log := sourced(t, one(), sink)
	sink.setRefuse(errors.New("service web: frontend is another source's\nservice x: too"))
	replace(t, path, one("balance: maglev"))
	eventually(t, "a failure", func() bool { return s.Status().Err != nil })
	eventually(t, "its line", func() bool { return strings.Contains(log.String(), "another source's (and 1 more fault)") })
	sink.setRefuse(nil)
	s.Reload()
	eventually(t, "recovery", func() bool { return s.Status().Err == nil })

	cfg, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	sink.setRefuse(errors.New("no"))
	if _, err := NewSource(cfg, sink, Options{}); err == nil {
		t.Error("the first load cannot fail")
	}
}

func TestSourceNamesWhatNeedsARestart(t *testing.T) {
	s, path, log := sourced(t, one(), &fakeSink{})
	replace(t, path, "admin: {socket: /x, http: \"\"}\ncapture: bind\nsource: {addresses: [10.0.0.1], ports: \"1-2\"}\nzone: b\n"+one())
	want := []string{"admin.socket", "admin.http", "capture", "source.addresses", "source.ports", "zone"}
	eventually(t, "all keys", func() bool { return slices.Equal(s.Status().RestartNeeded, want) })
	eventually(t, "a warning", func() bool { return strings.Contains(log.String(), strings.Join(want, ", ")) })
	replace(t, path, one())
	eventually(t, "no key", func() bool { return len(s.Status().RestartNeeded) == 0 })
}

// With the real store: what it has follows the file.
func TestSourceWithStore(t *testing.T) {
	st := store.New(store.Options{})
	_, path, _ := sourced(t, one("backends: [\"10.0.1.1:80\"]"), st.Source("file"))
	backends := func() int {
		svc, ok := st.Snapshot().Service("web")
		if !ok {
			return -1
		}
		return len(svc.Pool)
	}
	if n := backends(); n != 1 {
		t.Fatalf("%d backends", n)
	}
	replace(t, path, one("backends: [\"10.0.1.1:80\", \"10.0.1.2:80\"]"))
	eventually(t, "two backends", func() bool { return backends() == 2 })
	replace(t, path, "services: []\n")
	eventually(t, "no service", func() bool { return backends() == -1 })
}
