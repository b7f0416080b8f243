package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/baton-lb/baton/internal/testnet"
)

// successor prepares another process that is to take over from b, with a file of its
// own: b is not to see what is in it.
func (b *baton) successor(host *testnet.Host, services string, flags ...string) *baton {
	b.t.Helper()
	next := &baton{t: b.t, log: new(logBuffer), dir: b.dir, http: unixClient(b.socket())}
	file := filepath.Join(b.t.TempDir(), "baton.yaml")
	text := fmt.Sprintf("admin: {socket: %s, http: \"\"}\n%s", b.socket(), services)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	args := append([]string{"run", "--config", file, "--state-dir", b.dir, "--upgrade"}, flags...)
	next.cmd = host.Command(context.Background(), batonPath, args...)
	next.cmd.Stderr, next.cmd.Stdout = next.log, next.log
	return next
}

// unixClient asks the API at a socket.
func unixClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
}

// upgrade has another process take over from b, and waits until it serves.
func (b *baton) upgrade(w world, services string, flags ...string) *baton {
	b.t.Helper()
	next := b.successor(w.Balancer, services, flags...)
	next.run()
	next.waitServing()
	return next
}

// upgraded is the API of the process that an upgrade has replaced.
func (b *baton) upgraded() *baton {
	old := *b
	old.http = unixClient(fmt.Sprintf("%s.%d", b.socket(), b.cmd.Process.Pid))
	return &old
}

// load connects without pause, and counts.
type load struct {
	stop    chan struct{}
	once    sync.Once // closes it
	running sync.WaitGroup
	n       atomic.Int64
	mu      sync.Mutex
	failed  []error
}

func (w world) load(t *testing.T, workers int) *load {
	l := &load{stop: make(chan struct{})}
	t.Cleanup(l.halt) // where the test does not come as far as to its end
	for range workers {
		l.running.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				_, err := w.Client.AskName(w.vip)
				l.n.Add(1)
				if err != nil {
					l.mu.Lock()
					l.failed = append(l.failed, err)
					l.mu.Unlock()
				}
			}
		})
	}
	return l
}

// halt lets the workers end, and waits for them.
func (l *load) halt() {
	l.once.Do(func() { close(l.stop) })
	l.running.Wait()
}

// more waits until so many more have been made.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	from := l.n.Load()
	eventually(t, "clients are served", func() error {
		if got := l.n.Load() - from; got < n {
			return fmt.Errorf("%d of %d connections", got, n)
		}
		return nil
	})
}

// end wants none to have failed.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.halt()
	if len(l.failed) > 0 {
		t.Errorf("%d of %d connections failed, the first: %v", len(l.failed), l.n.Load(), l.failed[0])
	}
}

// cliWorks checks that the instance is found: by its socket, and by its lock.
func (b *baton) cliWorks(w world) {
	b.t.Helper()
	if page, err := b.text("/readyz"); err != nil {
		b.t.Errorf("the API: %s, %v", page, err)
	}
	out, err := w.Balancer.Command(b.t.Context(), batonPath, "run", "--config", b.config(), "--state-dir", b.dir).CombinedOutput()
	if want := fmt.Sprintf("pid %d ", b.cmd.Process.Pid); err == nil || !strings.Contains(string(out), want) {
		b.t.Errorf("a second instance says %q, %v; want %q in it", out, err, want)
	}
}

// replace changes the file.
func (b *baton) replace(what, with string) {
	b.t.Helper()
	text, err := os.ReadFile(b.config())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(b.config(), []byte(strings.Replace(string(text), what, with, 1)), 0o644); err != nil {
		b.t.Fatal(err)
	}
}
