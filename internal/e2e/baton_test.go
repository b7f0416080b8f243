package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// baton is a running `baton run` on a host.
type baton struct {
	t   *testing.T
	cmd *testnet.Cmd
	log *logBuffer
	dir string // state, socket and configuration

	objects bool // of Kubernetes are what is configured
	http    *http.Client
}

// logBuffer collects what the command logs; it is safe for concurrent use.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs the command with a configuration and waits until it serves.
func start(t *testing.T, host *testnet.Host, services string, flags ...string) *baton {
	t.Helper()
	b := launch(t, host, services, flags...)
	b.waitServing()
	return b
}

// waitServing waits until the command says that it serves.
func (b *baton) waitServing() {
	b.t.Helper()
	testnet.Eventually(b.t, 30*time.Second, "baton serves", func() error {
		if strings.Contains(b.log.String(), "msg=serving") {
			return nil
		}
		return fmt.Errorf("it logged:\n%s", b.log)
	})
}

// launch runs the command and does not wait for it to serve.
func launch(t *testing.T, host *testnet.Host, services string, flags ...string) *baton {
	t.Helper()
	dir := t.TempDir()
	return launchIn(t, host, dir, services, flags...)
}

// launchIn is launch with a directory that another instance may have used.
func launchIn(t *testing.T, host *testnet.Host, dir, services string, flags ...string) *baton {
	t.Helper()
	b := prepare(t, host, dir, services, flags...)
	b.run()
	return b
}

// prepare makes everything for the command, which run starts.
func prepare(t *testing.T, host *testnet.Host, dir, services string, flags ...string) *baton {
	t.Helper()
	b := &baton{t: t, log: new(logBuffer), dir: dir}
	b.configure(services)
	args := append(b.source(), "--state-dir", dir)
	args = append(args, flags...)
	b.cmd = host.Command(context.Background(), batonPath, args...)
	b.cmd.Stderr, b.cmd.Stdout = b.log, b.log
	b.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", b.socket())
		},
	}}
	return b
}

// run starts the command, which ends with the test.
func (b *baton) run() {
	b.t.Helper()
	if err := b.cmd.Start(); err != nil {
		b.t.Fatalf("start baton: %v", err)
	}
	b.t.Cleanup(func() {
		b.http.CloseIdleConnections()
		_ = b.stop(syscall.SIGKILL)
		_ = unix.Unmount(filepath.Join(b.dir, "bpf"), unix.MNT_DETACH) // with it goes what outlives the process
		if s := b.log.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "panic:") || b.t.Failed() {
			b.t.Errorf("baton logged:\n%s", s)
		}
	})
}

func (b *baton) config() string { return filepath.Join(b.dir, "baton.yaml") }
func (b *baton) socket() string { return filepath.Join(b.dir, "admin.sock") }

// configure writes the file as an editor does: aside, then renamed.
func (b *baton) configure(services string) {
	b.t.Helper()
	file, text := b.config(), fmt.Sprintf("admin: {socket: %s, http: \"\"}\n%s", b.socket(), services)
	if b.objects || strings.HasPrefix(services, asObjects) {
		b.objects = true
		file, text = b.objectsFile(), toObjects(b.t, services)
	}
	tmp := file + ".new"
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(tmp, file); err != nil {
		b.t.Fatal(err)
	}
}

// source is the command that serves what is configured.
func (b *baton) source() []string {
	if b.objects {
		return []string{"run", "--kube-objects", b.objectsFile(), "--node", "a", "--socket", b.socket(), "--log-level", "debug"}
	}
	return []string{"run", "--config", b.config()}
}

// signal sends a signal to the process.
func (b *baton) signal(s syscall.Signal) {
	b.t.Helper()
	if err := b.cmd.Process.Signal(s); err != nil {
		b.t.Errorf("signal baton: %v", err)
	}
}

// stop ends the process and returns how it ended.
func (b *baton) stop(s syscall.Signal) error {
	if err := b.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		b.t.Errorf("signal baton: %v", err)
	}
	return b.cmd.Wait()
}

// get reads JSON from the API.
func (b *baton) get(path string, into any) error {
	resp, err := b.http.Get("http://baton" + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return json.Unmarshal(body, into)
}

// flows lists live flows, ended the last ended ones.
func (b *baton) flows() []flow.View { return b.listFlows("/v1/flows") }
func (b *baton) ended() []flow.View { return b.listFlows("/v1/flows?ended=1") }

func (b *baton) listFlows(path string) []flow.View {
	b.t.Helper()
	var list struct{ Flows []flow.View }
	if err := b.get(path, &list); err != nil {
		b.t.Fatalf("list flows: %v", err)
	}
	return list.Flows
}

// endedOf waits until the flow of a client has ended, and returns it.
func (b *baton) endedOf(client net.Addr) (v flow.View) {
	b.t.Helper()
	testnet.Eventually(b.t, 20*time.Second, "the flow of "+client.String()+" has ended", func() error {
		for _, e := range b.ended() {
			if e.Client.String() == client.String() {
				v = e
				return nil
			}
		}
		return fmt.Errorf("live flows: %+v", b.flows())
	})
	return v
}

// wantEnd checks who ended a flow and why.
func wantEnd(t *testing.T, v flow.View, by flow.By, reason flow.Reason) {
	t.Helper()
	if v.EndedBy != by || v.Reason != reason {
		t.Errorf("the flow was ended by %s (%s), want by %s (%s): %+v", v.EndedBy, v.Reason, by, reason, v)
	}
}

// backendRow is one backend as `baton backends -o json` shows it.
type backendRow struct {
	Service, Backend, State, Health string
	Flows                           int64
	Failures                        uint64
}

func (b *baton) backends() []backendRow {
	b.t.Helper()
	var list struct{ Backends []backendRow }
	if err := b.get("/v1/backends", &list); err != nil {
		b.t.Fatalf("list backends: %v", err)
	}
	return list.Backends
}

// waitLog waits until the command has logged something.
func (b *baton) waitLog(what string) {
	b.t.Helper()
	testnet.Eventually(b.t, 20*time.Second, "the log has "+what, func() error {
		if strings.Contains(b.log.String(), what) {
			return nil
		}
		return errors.New(b.log.String())
	})
}
