package admin

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

func TestSocketFile(t *testing.T) {
	in := newInstance(t)
	fi, err := os.Lstat(in.socket)
	if err != nil {
		t.Fatal(err)
	}
	if fi.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("mode %v", fi.Mode())
	}
	if left, _ := filepath.Glob(in.socket + "?*"); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	_, err = New(Options{Socket: in.socket, Registry: in.registry, Store: in.store})
	if !errors.Is(err, ErrSocketInUse) || !strings.Contains(err.Error(), in.socket) {
		t.Errorf("a live socket: got %v", err)
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(in.socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestSocketOfADeadProcessIsReplaced(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	// Somebody puts his own there: it is not ours to remove.
	os.Remove(path)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("removed what was not ours: %v", err)
	}
	if _, err := listenUnix(path); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("a plain file: got %v", err)
	}
	if _, err := listenUnix("/" + strings.Repeat("x", 110)); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a long path: got %v", err)
	}
}

func TestTCPIsReadOnly(t *testing.T) {
	in := newInstance(t)
	in.life.SetReady()
	for path, want := range map[string]int{
		"/metrics": 200, "/healthz": 200, "/livez": 200, "/readyz": 200,
		"/v1/flows": 404, "/v1/services": 404, "/v1/drain": 404, "/debug/pprof/": 404, "/": 404,
	} {
		if got, _ := in.getTCP(path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	if got, _ := in.get("/debug/pprof/goroutine?debug=1"); got != http.StatusOK {
		t.Errorf("pprof on the socket: %d", got)
	}
	if got, _ := in.get("/v1/drain"); got != http.StatusMethodNotAllowed {
		t.Errorf("GET drain: %d", got)
	}
}

func TestHealth(t *testing.T) {
	in := newInstance(t)
	want := func(path string, status int, text string) {
		t.Helper()
		if got, body := in.getTCP(path); got != status || !strings.Contains(body, text) {
			t.Errorf("%s: %d %q, want %d with %q", path, got, body, status, text)
		}
	}
	want("/readyz", 503, "starting")
	want("/livez", 200, "ok")
	in.life.SetReady()
	want("/readyz", 200, "ok")
	in.life.SetStuck()
	want("/readyz", 503, "reconcile loop")
	want("/livez", 503, "reconcile loop")
	want("/healthz", 503, "reconcile loop")
	in.life.SetDraining()
	want("/readyz", 503, "draining")
	want("/livez", 200, "ok") // a restart would not help it to stop
}

func TestServicesJSON(t *testing.T) {
	in := newInstance(t)
	in.unhealthy("10.202.2.2:8080", "connection refused, 3 in a row")
	in.open("10.201.1.2:40000", time.Now())
	in.eventually("programmed", func() bool {
		_, body := in.get("/v1/services")
		return !strings.Contains(body, "pending")
	})
	const want = `{"services":[` +
		`{"name":"api","frontends":[{"frontend":"tcp://10.96.0.11:443","status":"ready","reason":"no usable backends: refusing"}],"mode":"proxy","backends":1,"ready":0,"flows":0},` +
		`{"name":"web","frontends":[{"frontend":"tcp://10.96.0.10:80","status":"ready"},{"frontend":"tcp://[fd96::10]:80","status":"ready"}],"mode":"proxy","backends":3,"ready":2,"flows":1}` +
		"]}\n"
	if _, got := in.get("/v1/services"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for query, want := range map[string]int{
		"service=web": 1, "service=web&service=api": 2, "frontend=10.96.0.11": 1, "backend=[fd02::2]:8080": 1,
		"protocol=udp": 0, "protocol=tcp": 2, "service=none": 0,
	} {
		_, body := in.get("/v1/services?" + query)
		if got := strings.Count(body, `"name"`); got != want {
			t.Errorf("%s: %d services, want %d", query, got, want)
		}
	}
	if status, body := in.get("/v1/services?client=x"); status != 400 || !strings.Contains(body, `"error":"--client`) {
		t.Errorf("bad filter: %d %s", status, body)
	}
}

func TestBackendsJSON(t *testing.T) {
	in := newInstance(t)
	in.unhealthy("10.202.2.2:8080", "connection refused, 3 in a row")
	in.open("10.201.1.2:40000", time.Now())
	if status, body := in.post("/v1/drain", `{"target":"web/[fd02::2]:8080"}`); status != 200 {
		t.Fatal(body)
	}
	const want = `{"backends":[` +
		`{"service":"api","backend":"10.202.3.2:443","state":"down","health":"healthy","weight":1,"flows":0,"failures":0},` +
		`{"service":"web","backend":"10.202.1.2:8080","state":"ready","health":"healthy","weight":1,"flows":1,"failures":0},` +
		`{"service":"web","backend":"10.202.2.2:8080","state":"ready","health":"unhealthy","healthReason":"connection refused, 3 in a row","weight":1,"flows":0,"failures":0},` +
		`{"service":"web","backend":"[fd02::2]:8080","state":"drain","health":"healthy","weight":1,"flows":0,"failures":0,"drained":true}` +
		"]}\n"
	if _, got := in.get("/v1/backends"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, body := in.get("/v1/backends?backend=10.202.0.0/16&service=web"); strings.Count(body, `"service"`) != 2 {
		t.Errorf("filtered: %s", body)
	}
}

func TestFlowsJSON(t *testing.T) {
	in := newInstance(t)
	at := time.Date(2025, 1, 2, 3, 4, 5, 123456789, time.UTC)
	second := in.open("10.201.1.3:40000", at.Add(time.Second))
	first := in.open("10.201.1.2:40000", at)
	gone := in.open("10.201.1.4:40000", at.Add(-time.Hour))
	gone.Finish(flow.ByBackend, flow.ReasonReset)

	status, body := in.get("/v1/flows")
	var got struct{ Flows []json.RawMessage }
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
		t.Fatalf("%d %v: %s", status, err, body)
	}
	if len(got.Flows) != 2 || !strings.Contains(string(got.Flows[0]), first.ID().String()) ||
		!strings.Contains(string(got.Flows[1]), second.ID().String()) {
		t.Fatalf("not the oldest first: %s", body)
	}
	wantKeys := []string{"backend", "bytesToBackend", "bytesToClient", "client", "frontend", "id", "lastSeenAt", "mode",
		"packetsToBackend", "packetsToClient", "path", "picked", "protocol", "service", "startedAt", "state"}
	if k := keys(t, got.Flows[0]); !slices.Equal(k, wantKeys) {
		t.Errorf("keys %v", k)
	}
	if !strings.Contains(body, `"startedAt":"2025-01-02T03:04:05.123456789Z"`) {
		t.Errorf("no nanoseconds: %s", body)
	}

	_, body = in.get("/v1/flows?ended=1")
	for _, want := range []string{`"endedBy":"backend"`, `"reason":"reset"`, `"endedAt":"`, gone.ID().String()} {
		if !strings.Contains(body, want) {
			t.Errorf("ended: no %s in %s", want, body)
		}
	}
	for query, want := range map[string]int{
		"ended=1": 1, "state=ended": 1, "state=established": 2, "state=ended&state=established": 3, "state=dialing": 0,
		"client=10.201.1.2": 1, "client=10.201.1.0/24:40000": 2, "path=bpf": 0, "backend=10.202.1.2:8080&protocol=tcp": 2,
		"state=ended&client=10.201.1.2": 0,
	} {
		_, body := in.get("/v1/flows?" + query)
		if n := strings.Count(body, `"id"`); n != want {
			t.Errorf("%s: %d flows, want %d", query, n, want)
		}
	}
	if _, body := in.get("/v1/flows?state=ended&state=established"); strings.Index(body, gone.ID().String()) > strings.Index(body, first.ID().String()) {
		t.Errorf("not sorted together: %s", body)
	}
}

func TestReset(t *testing.T) {
	in := newInstance(t)
	a := in.open("10.201.1.2:40000", time.Now())
	id := a.ID().String()
	status, body := in.post("/v1/reset", `{"flow":"`+id[:10]+`"}`)
	if status != 200 || !strings.Contains(body, `"ended":true`) || !strings.Contains(body, `"reason":"admin-reset"`) {
		t.Fatalf("%d %s", status, body)
	}
	for word, want := range map[string]struct {
		status int
		text   string
	}{
		id:                 {404, "has ended already: by baton, admin-reset"},
		"00000000000000aa": {404, "no flow has the id"},
		"abc":              {400, "at least the first 4"},
		"zzzz":             {400, "at least the first 4"},
		"":                 {400, "at least the first 4"},
	} {
		status, body := in.post("/v1/reset", `{"flow":"`+word+`"}`)
		if status != want.status || !strings.Contains(body, want.text) {
			t.Errorf("%q: %d %s", word, status, body)
		}
	}
	if status, _ := in.post("/v1/reset", `{"flow`); status != 400 {
		t.Errorf("broken JSON: %d", status)
	}

	// A flow that nothing carries yet cannot be ended.
	young := in.registry.Open(flow.Spec{Proto: flow.TCP, Service: "web"})
	if status, body := in.post("/v1/reset", `{"flow":"`+young.ID().String()+`"}`); status != 409 || !strings.Contains(body, "try again") {
		t.Errorf("%d %s", status, body)
	}
}

func TestResetNeedsAnUnambiguousStart(t *testing.T) {
	in := newInstance(t)
	for _, id := range []flow.ID{0xabcd000000000001, 0xabcd000000000002} {
		in.registry.Open(flow.Spec{ID: id, Proto: flow.TCP, Service: "web"})
	}
	status, body := in.post("/v1/reset", `{"flow":"abcd"}`)
	if status != 409 || !strings.Contains(body, "2 flows have an id that starts with abcd") {
		t.Errorf("%d %s", status, body)
	}
}

func TestDrain(t *testing.T) {
	in := newInstance(t)
	in.open("10.201.1.2:40000", time.Now())
	for _, tc := range []struct {
		verb, target string
		status       int
		want         []string
	}{
		{"drain", "web", 200, []string{`"target":"web"`, `"backend":"10.202.1.2:8080","state":"drain"`, `"flows":1`, `"drained":true`}},
		{"undrain", "web/10.202.1.2:8080", 409, []string{"not drained by itself: web is"}},
		{"undrain", "web", 200, []string{`"state":"ready"`}},
		{"undrain", "web", 409, []string{"not drained"}},
		{"drain", "10.202.1.2:8080", 200, []string{`"target":"10.202.1.2:8080","backends":[{"service":"web"`}},
		{"drain", "nope", 404, []string{`unknown service`}},
		{"drain", "web/10.9.9.9:1", 404, []string{`has none at 10.9.9.9:1`}},
		{"drain", "10.9.9.9:1", 404, []string{`no service has one at 10.9.9.9:1`}},
		{"drain", "", 400, []string{"want SERVICE"}},
	} {
		status, body := in.post("/v1/"+tc.verb, `{"target":"`+tc.target+`"}`)
		if status != tc.status {
			t.Errorf("%s %s: %d %s", tc.verb, tc.target, status, body)
		}
		for _, want := range tc.want {
			if !strings.Contains(strings.ReplaceAll(body, `\"`, `"`), want) {
				t.Errorf("%s %s: no %s in %s", tc.verb, tc.target, want, body)
			}
		}
	}
}

func TestWatchSendsChanges(t *testing.T) {
	in := newInstance(t)
	next, _ := in.stream("/v1/flows?watch=100ms")
	if got := next(); got != "{\"flows\":[]}\n" {
		t.Fatalf("first: %q", got)
	}
	rec := in.open("10.201.1.2:40000", time.Now())
	if got := next(); strings.Count(got, rec.ID().String()) != 1 {
		t.Fatalf("then: %q", got)
	}
	rec.Finish(flow.ByClient, flow.ReasonClosed)
	if got := next(); got != "{\"flows\":[]}\n" {
		t.Fatalf("at last: %q", got)
	}
	if err := in.stop(); err != nil { // a watch does not hold the instance up
		t.Fatal(err)
	}
	if got := next(); got != "" {
		t.Errorf("after the end: %q", got)
	}
	in2 := newInstance(t)
	if status, _ := in2.get("/v1/flows?watch=soon"); status != 400 {
		t.Errorf("bad interval: %d", status)
	}
}

func TestInstance(t *testing.T) {
	in := newInstance(t, func(o *Options) { o.Readiness = nil })
	_, body := in.get("/v1/instance")
	var got Instance
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if got.PID != os.Getpid() || got.Socket != in.socket || got.Version != "v1.2.3" || !got.Ready || got.Services != 2 {
		t.Errorf("%+v", got)
	}
	if status, body := in.get("/v1/doctor"); status != 404 || !strings.Contains(body, "no doctor") {
		t.Errorf("doctor: %d %s", status, body)
	}
}

// TestManyFlows lists what no answer should be built of in memory.
func TestManyFlows(t *testing.T) {
	in := newInstance(t)
	const n = 20_000
	fe := netip.MustParseAddrPort("10.96.0.10:80")
	for i := range n {
		in.registry.Open(flow.Spec{
			Proto: flow.TCP, Service: "web", Frontend: fe,
			Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 4711),
		})
	}
	resp, err := in.client().Get("http://baton/v1/flows")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ContentLength >= 0 {
		t.Errorf("built whole: Content-Length %d", resp.ContentLength)
	}
	var got struct{ Flows []flow.View }
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if len(got.Flows) != n || !slices.IsSortedFunc(got.Flows, olderFirst) {
		t.Errorf("%d flows, sorted %v", len(got.Flows), slices.IsSortedFunc(got.Flows, olderFirst))
	}
}
