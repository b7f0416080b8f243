package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/testnet"
)

func TestDoctorCommand(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("a")
	good := writeFile(t, goodFile)
	foreign := writeFile(t, strings.Replace(goodFile, "services:", "capture: bind\nservices:", 1)+
		"  - name: vip\n    frontends: [\"tcp://10.96.0.10:80\"]\n    backends: [\"10.202.1.2:80\"]\n")
	bad := writeFile(t, badFile)
	for _, tc := range []struct {
		args   string
		code   int
		stdout []string
		stderr string
	}{
		{"doctor", 0, []string{"CAP_NET_ADMIN         present", "path bpf              absent", "lo      none      -    flows on loopback stay in userspace", "transparent           present", "XDP of drivers"}, ""},
		{"doctor -o json", 0, []string{`"probe":"splice","answer":"present"`, `"fine":true`}, ""},
		{"doctor --config " + good, 0, []string{"web      tcp://127.0.0.1:8000  bind     loopback address"}, ""},
		{"doctor --config " + foreign, 1, []string{"problem: service vip: tcp://10.96.0.10:80: 10.96.0.10 is not configured"}, ""},
		{"doctor -o json --config " + foreign, 1, []string{`"fine":false`, `"capture":"bind"`}, ""},
		{"doctor --config " + bad, 1, nil, bad + ":4: "},
	} {
		var code int
		var out, errs string
		h.Do(func() { code, out, errs = command(strings.Fields(tc.args)...) })
		if code != tc.code || !strings.Contains(errs, tc.stderr) || tc.stderr == "" && errs != "" {
			t.Errorf("%s: %d %q", tc.args, code, errs)
		}
		for _, want := range tc.stdout {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", tc.args, want, out)
			}
		}
		for line := range strings.Lines(out) {
			if n := utf8.RuneCountInString(line); n > tableWidth+1 && !strings.HasPrefix(line, "{") {
				t.Errorf("%s: %d columns: %s", tc.args, n, line)
			}
		}
	}
}

func TestCheckWarns(t *testing.T) {
	path := writeFile(t, strings.Replace(goodFile, `["127.0.0.1:9001"]`, `["127.0.0.1:8000"]`, 1))
	code, out, errs := command("check", "--config", path)
	want := path + ":4: warning: backend 127.0.0.1:8000 is a frontend of the same service: connections go round in a circle\n" +
		path + " is fine: 1 service, 1 frontend, 1 backend\n"
	if code != exitFine || out != want || errs != "" {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

// staleSocket leaves the socket of an instance that was killed.
func staleSocket(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "admin.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	return path
}

func TestCleanupCommand(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("a")
	dir := t.TempDir()
	socket := staleSocket(t, dir)
	h.Do(func() {
		lock, err := admin.AcquireLock(admin.Holder{Socket: socket})
		if err != nil {
			t.Fatal(err)
		}
		code, out, errs := command("cleanup", "--state-dir", dir)
		want := fmt.Sprintf("baton: pid %d (socket %s) runs in this network namespace: stop it first\n", os.Getpid(), socket)
		if code != exitNotFine || out != "" || errs != want {
			t.Errorf("beside an instance: %d %q %q", code, out, errs)
		}
		lock.Close()

		for _, want := range []string{"removed socket " + socket + "\n", "nothing to remove\n"} {
			if code, out, errs := command("cleanup", "--state-dir", dir); code != exitFine || out != want || errs != "" {
				t.Errorf("%d %q %q, want %q", code, out, errs, want)
			}
		}
		if _, out, _ := command("cleanup", "--state-dir", dir, "-o", "json"); out != "{\"removed\":[]}\n" {
			t.Errorf("JSON: %q", out)
		}
	})
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestCleanupLeavesOthersAlone has a socket that is served, and a plain file.
func TestCleanupLeavesOthersAlone(t *testing.T) {
	s := serve(t)
	if did, err := removeSocket(s.socket); did != "" || err != nil {
		t.Errorf("a served socket: %q, %v", did, err)
	}
	plain := writeFile(t, "")
	if did, err := removeSocket(plain); did != "" || err != nil {
		t.Errorf("a plain file: %q, %v", did, err)
	}
	if _, err := os.Lstat(plain); err != nil {
		t.Error(err)
	}
}
