package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// instance is a server with a real store and registry, and no data path.
type instance struct {
	t        *testing.T
	server   *Server
	store    *store.Store
	source   *store.Source
	registry *flow.Registry
	life     *Lifecycle
	socket   string
	stop     func() error
}

// newInstance starts one that serves web (two backends, one of them unhealthy)
// and dns6.
func newInstance(t *testing.T, change ...func(*Options)) *instance {
	t.Helper()
	in := &instance{t: t, registry: flow.NewRegistry(flow.Options{}), life: &Lifecycle{}}
	in.store = store.New(store.Options{Registry: in.registry})
	in.source = in.store.Source("test")
	in.replace(testServices()...)
	in.source.Synced()
	in.socket = filepath.Join(shortDir(t), "run", "admin.sock")
	o := Options{
		Socket: in.socket, HTTP: "127.0.0.1:0", Registry: in.registry, Store: in.store, Readiness: in.life,
		Instance: Holder{PID: os.Getpid(), Socket: in.socket, Config: "baton.yaml"}, Version: "v1.2.3",
	}
	for _, c := range change {
		c(&o)
	}
	server, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	in.server = server
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var runErr error
	wg.Go(func() { in.store.Run(ctx) })
	wg.Go(func() { runErr = server.Run(ctx) })
	in.stop = sync.OnceValue(func() error {
		cancel()
		wg.Wait()
		return runErr
	})
	t.Cleanup(func() {
		if err := in.stop(); err != nil {
			t.Error(err)
		}
	})
	if err := in.store.Programmed(t.Context(), in.store.Snapshot().Revision); err != nil {
		t.Fatal(err)
	}
	return in
}

// shortDir is a directory whose name fits a socket address.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func testServices() []lb.Service {
	web := lb.Default("web")
	web.Frontends = []lb.Frontend{mustFrontend("tcp://10.96.0.10:80"), mustFrontend("tcp://[fd96::10]:80")}
	web.Backends = []lb.Backend{mustBackend("10.202.1.2:8080"), mustBackend("10.202.2.2:8080"), mustBackend("[fd02::2]:8080")}
	web.Affinity.By = lb.ByClientIP
	down := lb.Default("api")
	down.Frontends = []lb.Frontend{mustFrontend("tcp://10.96.0.11:443")}
	down.Backends = []lb.Backend{mustBackend("10.202.3.2:443")}
	down.Backends[0].State = lb.StateDown
	return []lb.Service{web, down}
}

func mustFrontend(s string) lb.Frontend {
	f, err := lb.ParseFrontend(s)
	if err != nil {
		panic(err)
	}
	return f
}

func mustBackend(s string) lb.Backend {
	b, err := lb.ParseBackend(s)
	if err != nil {
		panic(err)
	}
	return b
}

func (in *instance) replace(services ...lb.Service) {
	in.t.Helper()
	if err := in.source.Replace(services); err != nil {
		in.t.Fatal(err)
	}
}

// unhealthy says that a backend of web is down.
func (in *instance) unhealthy(backend, why string) {
	in.t.Helper()
	in.store.SetHealth("web", netip.MustParseAddrPort(backend), store.Health{Unhealthy: true, Reason: why})
	in.eventually("the backend is unhealthy", func() bool {
		svc, _ := in.store.Snapshot().Service("web")
		b, _ := svc.Backend(netip.MustParseAddrPort(backend))
		return b.Unhealthy
	})
}

func (in *instance) eventually(what string, ok func() bool) {
	in.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			in.t.Fatalf("never: %s", what)
		}
	}
}

// testPath carries a flow of a test.
type testPath struct {
	counters flow.Counters
	end      func(flow.By, flow.Reason)
}

func (p *testPath) Counters() flow.Counters { return p.counters }
func (p *testPath) End(by flow.By, why flow.Reason) {
	if p.end != nil {
		p.end(by, why)
	}
}

// open opens an established flow of web.
func (in *instance) open(client string, started time.Time) *flow.Record {
	in.t.Helper()
	svc, ok := in.store.Snapshot().Service("web")
	if !ok {
		in.t.Fatal("no service web")
	}
	rec := in.registry.Open(flow.Spec{
		Proto: flow.TCP, Service: "web", Frontend: svc.Frontends[0].Address,
		Client: netip.MustParseAddrPort(client), StartedAt: started,
	})
	p := &testPath{counters: flow.Counters{BytesToBackend: 120, BytesToClient: 3400, LastSeen: started.Add(time.Second)}}
	p.end = rec.Finish
	rec.Attach(flow.PathUserspace, p)
	if !rec.Assign(flow.Assignment{Backend: svc.Pool[0].Address, Picked: flow.ByAlgorithm, Load: svc.Pool[0].Load}) {
		in.t.Fatal("not assigned")
	}
	rec.Dialled()
	return rec
}

// client speaks to the socket.
func (in *instance) client() *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", in.socket)
	}}
	in.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// get returns the status and body of a GET on the socket.
func (in *instance) get(path string) (int, string) {
	in.t.Helper()
	resp, err := in.client().Get("http://baton" + path)
	if err != nil {
		in.t.Fatal(err)
	}
	return readAll(in.t, resp)
}

func (in *instance) post(path, body string) (int, string) {
	in.t.Helper()
	resp, err := in.client().Post("http://baton"+path, "application/json", strings.NewReader(body))
	if err != nil {
		in.t.Fatal(err)
	}
	return readAll(in.t, resp)
}

// getTCP is get on the TCP address.
func (in *instance) getTCP(path string) (int, string) {
	in.t.Helper()
	tr := &http.Transport{}
	in.t.Cleanup(tr.CloseIdleConnections)
	resp, err := (&http.Client{Transport: tr}).Get("http://" + in.server.Addr().String() + path)
	if err != nil {
		in.t.Fatal(err)
	}
	return readAll(in.t, resp)
}

func readAll(t *testing.T, resp *http.Response) (int, string) {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// stream opens a stream on the socket; its lines come through next.
func (in *instance) stream(path string) (next func() string, stop func()) {
	in.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	in.t.Cleanup(cancel)
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://baton"+path, nil)
	resp, err := in.client().Do(req)
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { resp.Body.Close() })
	r := bufio.NewReader(resp.Body)
	return func() string {
		in.t.Helper()
		line, err := r.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			in.t.Fatal(err)
		}
		return line
	}, cancel
}

// keys lists the keys of a JSON object, sorted.
func keys(t *testing.T, object []byte) []string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(object)).Decode(&m); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}
