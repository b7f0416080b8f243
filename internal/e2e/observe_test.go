package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// reload changes the file and waits until it is in force for new flows.
func (b *baton) reload(services string) {
	b.t.Helper()
	loaded := []string{"configuration loaded"}
	if b.objects {
		loaded = []string{"objects read", "objects applied"}
	}
	before := make([]int, len(loaded))
	for i, line := range loaded {
		before[i] = b.logged(line)
	}
	rounds := b.metric("baton_programming_seconds_count")
	b.configure(services)
	defer b.programmed(rounds)
	eventually(b.t, "the file is loaded", func() error {
		for i, line := range loaded {
			if b.logged(line) <= before[i] {
				return errors.New(b.log.String())
			}
		}
		return nil
	})
}

// programmed waits for a round after so many: the relay goes by what is desired, the kernel by what it has been told. A file
// that changes nothing has no round.
func (b *baton) programmed(after float64) {
	for deadline := time.Now().Add(500 * time.Millisecond); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if b.metric("baton_programming_seconds_count") > after {
			return
		}
	}
}

// logged counts the lines of the log that have what in them.
func (b *baton) logged(what string) int { return strings.Count(b.log.String(), what) }

// text reads a page of the API.
func (b *baton) text(path string) (string, error) {
	resp, err := b.http.Get("http://baton" + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return string(body), err
}

// post sends one request for a target: /v1/drain and /v1/undrain.
func (b *baton) post(path, target string) {
	b.t.Helper()
	resp, err := b.http.Post("http://baton"+path, "application/json", bytes.NewBufferString(fmt.Sprintf("{%q: %q}", "target", target)))
	if err != nil {
		b.t.Fatalf("%s %s: %v", path, target, err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		b.t.Fatalf("%s %s: %s: %s", path, target, resp.Status, body)
	}
}

// metric sums the samples of a metric that have all the labels (`name="value"`).
func (b *baton) metric(name string, labels ...string) float64 {
	b.t.Helper()
	page, err := b.text("/metrics")
	if err != nil {
		b.t.Fatalf("read metrics: %v", err)
	}
	sum := 0.0
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' || !hasAll(rest, labels) {
			continue
		}
		fields := strings.Fields(line)
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			b.t.Fatalf("metric %s: %v", line, err)
		}
		sum += v
	}
	return sum
}

func hasAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// wantMetric waits until a metric is as wanted.
func (b *baton) wantMetric(want float64, name string, labels ...string) {
	b.t.Helper()
	eventually(b.t, name+"{"+strings.Join(labels, ",")+"}", func() error {
		if got := b.metric(name, labels...); got != want {
			return fmt.Errorf("it is %v, want %v", got, want)
		}
		return nil
	})
}

// usage is what the kernel says that the process uses.
type usage struct {
	rss         int64 // bytes
	descriptors int
	goroutines  int
	cpu         time.Duration
}

func (u usage) String() string {
	return fmt.Sprintf("%d KiB resident, %d descriptors, %d goroutines, %v CPU", u.rss>>10, u.descriptors, u.goroutines, u.cpu)
}

// usage reads /proc and the process's own count of goroutines.
func (b *baton) usage() usage {
	b.t.Helper()
	u := usage{rss: b.status("VmRSS:") << 10, descriptors: b.descriptors(), cpu: b.cpu()}
	page, err := b.text("/debug/pprof/goroutine?debug=1")
	if err != nil {
		b.t.Fatalf("count goroutines: %v", err)
	}
	if _, err := fmt.Sscanf(page, "goroutine profile: total %d", &u.goroutines); err != nil {
		b.t.Fatalf("count goroutines in %.100q: %v", page, err)
	}
	return u
}

// status reads a number of /proc/PID/status.
func (b *baton) status(key string) int64 {
	b.t.Helper()
	for line := range strings.Lines(b.proc("status")) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				b.t.Fatal(err)
			}
			return n
		}
	}
	b.t.Fatalf("no %s in the process's status", key)
	return 0
}

func (b *baton) descriptors() int {
	b.t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	return len(list)
}

// cpu is the time that the process has computed, in user and kernel mode.
func (b *baton) cpu() time.Duration {
	b.t.Helper()
	stat := b.proc("stat")
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	ticks := int64(0)
	for _, f := range fields[11:13] { // utime and stime of proc(5), in ticks of 10 ms
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func (b *baton) proc(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", b.cmd.Process.Pid, name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// wantFlows waits until that many flows are live.
func (b *baton) wantFlows(n int) []flow.View {
	b.t.Helper()
	var live []flow.View
	eventually(b.t, fmt.Sprintf("%d flows are live", n), func() error {
		if live = b.flows(); len(live) != n {
			return fmt.Errorf("there are %d: %+v", len(live), live)
		}
		return nil
	})
	return live
}

// row is a backend as the command shows it.
func (b *baton) row(addr string) (r backendRow) {
	b.t.Helper()
	for _, r := range b.backends() {
		if r.Backend == addr {
			return r
		}
	}
	b.t.Fatalf("backend %s is not listed", addr)
	return r
}

// number is the index of a backend by its name.
func (w world) number(t *testing.T, name string) int {
	t.Helper()
	for i, b := range w.Backends {
		if b.Name() == name {
			return i
		}
	}
	t.Fatalf("no backend is called %q", name)
	return -1
}

// with lists every backend, those in state as maps with more keys.
func (w world) with(state map[int]string) []string {
	list := []string{}
	for i := range w.Backends {
		list = append(list, fmt.Sprintf("{address: %q%s}", w.backend(i), state[i]))
	}
	return list
}

// without lists every backend but one.
func (w world) without(skip int) []string {
	list := []string{}
	for i := range w.Backends {
		if i != skip {
			list = append(list, fmt.Sprintf("%q", w.backend(i)))
		}
	}
	return list
}

// named connects and reads the name with which the backend begins.
func (w world) named(t *testing.T) (*conn, string) {
	t.Helper()
	c := &conn{w.dial(t)}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	name, err := testnet.ReadName(c)
	if err != nil {
		t.Fatalf("through the VIP: %v", err)
	}
	return c, name
}

// at connects until one backend has it, and closes the other connections.
func (w world) at(t *testing.T, i int) *conn {
	t.Helper()
	for range 10 * len(w.Backends) {
		c, name := w.named(t)
		if name == w.Backends[i].Name() {
			return c
		}
		c.Close()
	}
	t.Fatalf("no connection reached %s", w.Backends[i].Name())
	return nil
}
