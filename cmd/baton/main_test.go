package main

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// asBaton makes the test binary the program itself, for tests of exit codes.
const asBaton = "BATON_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asBaton) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// program runs the program in a process of its own.
func program(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asBaton+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// command runs a command line in this process.
func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(args, &out, &errs)
	return code, out.String(), errs.String()
}

// served is an instance without a data path.
type served struct {
	t        *testing.T
	socket   string
	registry *flow.Registry
	store    *store.Store
	stop     func()
}

func serve(t *testing.T, change ...func(*admin.Options)) *served {
	t.Helper()
	dir, err := os.MkdirTemp("", "baton")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{t: t, socket: filepath.Join(dir, "admin.sock"), registry: flow.NewRegistry(flow.Options{})}
	s.store = store.New(store.Options{Registry: s.registry})
	src := s.store.Source("test")
	if err := src.Replace([]lb.Service{webService()}); err != nil {
		t.Fatal(err)
	}
	src.Synced()
	o := admin.Options{Socket: s.socket, Registry: s.registry, Store: s.store}
	for _, c := range change {
		c(&o)
	}
	server, err := admin.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.store.Run(ctx) })
	wg.Go(func() { server.Run(ctx) })
	s.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		os.RemoveAll(dir)
	})
	t.Cleanup(s.stop)
	if err := s.store.Programmed(t.Context(), s.store.Snapshot().Revision); err != nil {
		t.Fatal(err)
	}
	return s
}

func webService() lb.Service {
	s := lb.Default("web")
	for _, text := range []string{"tcp://10.96.0.10:80", "tcp://[fd96::10]:80"} {
		f, err := lb.ParseFrontend(text)
		if err != nil {
			panic(err)
		}
		s.Frontends = append(s.Frontends, f)
	}
	for _, text := range []string{"10.202.1.2:8080", "10.202.2.2:8080"} {
		b, err := lb.ParseBackend(text)
		if err != nil {
			panic(err)
		}
		s.Backends = append(s.Backends, b)
	}
	return s
}

// path ends when it is asked to.
type path struct{ end func(flow.By, flow.Reason) }

func (p *path) Counters() flow.Counters {
	return flow.Counters{BytesToBackend: 1200, BytesToClient: 3 << 20, LastSeen: time.Now()}
}
func (p *path) End(by flow.By, why flow.Reason) { p.end(by, why) }

// open opens an established flow of web.
func (s *served) open(client string) *flow.Record {
	s.t.Helper()
	svc, _ := s.store.Snapshot().Service("web")
	rec := s.registry.Open(flow.Spec{
		Proto: flow.TCP, Service: "web", Frontend: svc.Frontends[0].Address, Client: netip.MustParseAddrPort(client),
	})
	p := &path{}
	p.end = rec.Finish
	rec.Attach(flow.PathUserspace, p)
	rec.Assign(flow.Assignment{Backend: svc.Pool[0].Address, Picked: flow.ByAlgorithm, Load: svc.Pool[0].Load})
	rec.Dialled()
	return rec
}

// run runs a command against the instance.
func (s *served) run(args ...string) (code int, stdout, stderr string) {
	return command(append(args, "--socket", s.socket)...)
}

// fine runs a command that must succeed, and returns its output.
func (s *served) fine(args ...string) string {
	s.t.Helper()
	code, out, errs := s.run(args...)
	if code != exitFine || errs != "" {
		s.t.Fatalf("%s: exit code %d: %s", strings.Join(args, " "), code, errs)
	}
	return out
}
