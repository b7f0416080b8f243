package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/baton-lb/baton/internal/testnet"
)

// demoRun is a `baton demo` of the built program, which keeps its files in tmp.
type demoRun struct {
	cmd   *exec.Cmd
	tmp   string
	lines chan string // of its output
	errs  bytes.Buffer
}

func startDemo(t *testing.T, args ...string) *demoRun {
	t.Helper()
	testnet.RequireRoot(t)
	tmp, err := os.MkdirTemp("", "demo-") // t.TempDir may be too long for a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	r := &demoRun{tmp: tmp, lines: make(chan string, 1000)}
	r.cmd = exec.Command(builtBaton(t), append([]string{"demo"}, args...)...)
	r.cmd.Env = append(os.Environ(), "TMPDIR="+r.tmp)
	r.cmd.Stdout, r.cmd.Stderr = &lineWriter{to: r.lines}, &r.errs
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

// lineWriter hands over what is written to it line by line.
type lineWriter struct {
	to   chan<- string
	rest []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		line, rest, ok := bytes.Cut(w.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		w.to <- string(line)
		w.rest = rest
	}
}

// builtBaton builds the program once.
func builtBaton(t *testing.T) string {
	t.Helper()
	path, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	// The last test to end may not know that it is the last: a copy for each.
	own := filepath.Join(t.TempDir(), "baton")
	if err := os.WriteFile(own, path, 0o755); err != nil {
		t.Fatal(err)
	}
	return own
}

var buildOnce = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "baton-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "baton")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return os.ReadFile(path)
})

// wait waits for the program to end and returns its exit code and its output.
func (r *demoRun) wait(t *testing.T, within time.Duration) (code int, lines []string) {
	t.Helper()
	late := time.AfterFunc(within, func() { _ = r.cmd.Process.Kill() })
	defer late.Stop()
	err := r.cmd.Wait()
	close(r.lines)
	for line := range r.lines {
		lines = append(lines, line)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return r.cmd.ProcessState.ExitCode(), lines
}

// nothingLeft checks that no process and no file of the demonstration is there.
func (r *demoRun) nothingLeft(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(r.tmp)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Errorf("%s is left", filepath.Join(r.tmp, f.Name()))
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		exe, _ := os.Readlink(p + "/exe")
		cwd, _ := os.Readlink(p + "/cwd")
		if strings.HasPrefix(exe, r.cmd.Path) || strings.HasPrefix(cwd, r.tmp) {
			cmdline, _ := os.ReadFile(p + "/cmdline")
			t.Errorf("%s is left: %q", p, cmdline)
		}
	}
}

func TestDemoTellsTheTruth(t *testing.T) {
	r := startDemo(t, "--fast")
	code, lines := r.wait(t, 2*time.Minute) // it takes one second where nothing else runs
	if code != 0 || r.errs.Len() != 0 {
		t.Errorf("exit code %d, and it complains %q, after:\n%s", code, &r.errs, strings.Join(lines, "\n"))
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > screenWidth || strings.Contains(line, "…") {
			t.Errorf("does not fit on %d columns: %q", screenWidth, line)
		}
		if strings.ContainsRune(line, '\x1b') {
			t.Errorf("coloured, and this is no terminal: %q", line)
		}
	}
	r.nothingLeft(t)
}

func TestDemoIsGoneAfterASignal(t *testing.T) {
	tests := []struct {
		when string // this line has been printed
		args []string
		sig  os.Signal
	}{
		{"1. Two clients", []string{"--fast"}, os.Interrupt},
		{"$ baton run", []string{"--fast"}, syscall.SIGTERM},
		{"=> all services are ready", nil, os.Interrupt},
		{"$ baton flows", nil, syscall.SIGHUP},
		{"4. Failover", []string{"--fast"}, os.Interrupt},
		{"6. Reload", []string{"--fast"}, syscall.SIGTERM},
		{"=> the connection goes on", []string{"--fast"}, os.Interrupt},
	}
	for _, tt := range tests {
		t.Run(tt.when, func(t *testing.T) {
			t.Parallel()
			r := startDemo(t, tt.args...)
			for line := range r.lines {
				if strings.HasPrefix(line, tt.when) {
					break
				}
			}
			if err := r.cmd.Process.Signal(tt.sig); err != nil {
				t.Fatal(err)
			}
			signalled := time.Now()
			code, lines := r.wait(t, 20*time.Second)
			if code != 1 || !strings.HasPrefix(r.errs.String(), "baton: demo: stopped: ") {
				t.Errorf("exit code %d, and it says %q, after:\n%s", code, &r.errs, strings.Join(lines, "\n"))
			}
			if took := time.Since(signalled); took > 5*time.Second {
				t.Errorf("took %v to end", took)
			}
			r.nothingLeft(t)
		})
	}
}

func TestDemoNeedsRoot(t *testing.T) {
	testnet.RequireRoot(t) // to become another user
	path := builtBaton(t)
	dir := filepath.Dir(path)
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(path, "demo")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "root") {
		t.Errorf("%v: %s", err, out)
	}
}
