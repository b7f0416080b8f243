package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// attempt is a `baton run` that is expected not to run.
type attempt struct {
	host   *testnet.Host
	dir    string   // "" = a new one
	config string   // the whole file, which may use DIR and is called DIR/baton.yaml
	uid    uint32   // 0 = root
	args   []string // instead of the usual ones
}

// refusal is how it ended.
type refusal struct {
	lines []string // of standard error, with the directory as DIR
	code  int
	dir   string
}

// run runs it to its end and checks what every refusal has in common: nothing on
// standard output, no stack, no usage, nothing said twice, nothing left behind.
func (a attempt) run(t *testing.T) refusal {
	t.Helper()
	if a.dir == "" {
		a.dir = t.TempDir()
	}
	file := filepath.Join(a.dir, "baton.yaml")
	if a.config != "" {
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(a.config, "DIR", a.dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if a.args == nil {
		a.args = []string{"run", "--config", file, "--state-dir", a.dir}
	}
	before := a.footprint(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := a.host.Command(ctx, batonPath, a.args...)
	if a.uid != 0 {
		asUser(t, cmd, a.uid, a.dir)
	}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("it ended with %v; it wrote %q", err, out)
	}
	r := refusal{code: exit.ExitCode(), dir: a.dir}
	text := strings.ReplaceAll(strings.TrimSuffix(string(exit.Stderr), "\n"), a.dir, "DIR")
	r.lines = strings.Split(text, "\n")
	for _, never := range []string{"goroutine ", "panic", "Usage:", "DATA RACE", "%!"} {
		if strings.Contains(text, never) {
			t.Errorf("standard error has %q:\n%s", never, text)
		}
	}
	if sorted := slices.Sorted(slices.Values(r.lines)); len(slices.Compact(sorted)) != len(r.lines) {
		t.Errorf("said twice:\n%s", text)
	}
	if len(out) > 0 {
		t.Errorf("on standard output: %q", out)
	}
	if after := a.footprint(t); after != before {
		t.Errorf("left behind:\n%s\nbefore it was:\n%s", after, before)
	}
	return r
}

// footprint is what a process could leave behind: listening sockets, the instance
// lock, routes, files.
func (a attempt) footprint(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, f := range []string{"tcp", "tcp6", "unix"} {
		var text []byte
		var err error
		a.host.Do(func() { text, err = os.ReadFile("/proc/thread-self/net/" + f) })
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) > 3 && fields[3] == "0A" || strings.Contains(line, "baton") {
				fmt.Fprintf(&b, "%s %s\n", f, fields[1:4])
			}
		}
	}
	fmt.Fprintf(&b, "routes %v\n", vipRoutes(t, a.host))
	list, err := os.ReadDir(a.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		fmt.Fprintln(&b, "file", e.Name())
	}
	return b.String()
}

// asUser has a program run without privileges, in a directory of its own.
func asUser(t *testing.T, cmd *testnet.Cmd, uid uint32, dir string) {
	t.Helper()
	err := errors.Join(os.Chmod(filepath.Dir(batonPath), 0o755), os.Chown(dir, int(uid), int(uid)))
	for up := filepath.Dir(dir); up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
		err = errors.Join(err, os.Chmod(up, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
}

// nobody is a user without privileges.
const nobody = 65534

// says checks that a refusal is exactly these lines, each given by a part of it
// that it must have.
func (r refusal) says(t *testing.T, code int, want ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	if len(r.lines) != len(want) {
		t.Errorf("%d lines, want %d:\n%s", len(r.lines), len(want), strings.Join(r.lines, "\n"))
		return
	}
	for i, line := range r.lines {
		if !hasAll(line, strings.Split(want[i], " … ")) {
			t.Errorf("it says\n\t%s\nwant\n\t%s", line, want[i])
		}
	}
}

// head is the first line of every file here.
const head = "admin: {socket: DIR/admin.sock, http: \"\"}\n"

// Faults of the file, each with its line.
func TestBadFile(t *testing.T) {
	host := testnet.New(t).Host("balancer")
	const web = "services:\n  - name: web\n    frontends: [\"tcp://10.96.0.10:80\"]\n    backends: [\"10.202.1.2:8080\"]\n"
	for _, tc := range []struct {
		name, config string
		want         []string
	}{
		{"malformed", "services:\n  - name: [\n", []string{"DIR/baton.yaml:3: not YAML: "}},
		{"list", "- web\n", []string{"DIR/baton.yaml:2: not YAML: "}},
		{"unknown key", web + "    helath: {}\n", []string{`DIR/baton.yaml:6: service web: unknown key "helath": did you mean "health"?`}},
		{"two faults", web + "    balance: rr\n    drainTimeout: 30\n", []string{
			"DIR/baton.yaml:6: service web: balance: \"rr\" is unknown",
			"DIR/baton.yaml:7: service web: drainTimeout: 30 has no unit",
		}},
		{"duplicate frontend", web + "  - name: other\n    frontends:\n      - tcp://10.96.0.11:80\n      - tcp://10.96.0.10:80\n", []string{
			"DIR/baton.yaml:9: frontend tcp://10.96.0.10:80 of service other is already listed by service web at line 4",
		}},
		{"same name", web + "  - name: web\n    frontends: [\"tcp://10.96.0.11:80\"]\n", []string{
			"DIR/baton.yaml:6: service web is defined already at line 3",
		}},
		{"sctp", "services:\n  - name: dns\n    frontends: [\"sctp://10.96.0.10:53\"]\n", []string{"DIR/baton.yaml:4: service dns: … sctp … not built yet"}},
		{"sctp", "services:\n  - name: m3\n    frontends: [\"sctp://10.96.0.10:80\"]\n", []string{"DIR/baton.yaml:4: service m3: … sctp … not built yet"}},
		{"offload path", web + "    offload: {path: flowtable}\n", []string{"DIR/baton.yaml:6: service web: offload … not built yet"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			attempt{host: host, config: head + tc.config}.run(t).says(t, 1, tc.want...)
		})
	}
	t.Run("absent", func(t *testing.T) {
		attempt{host: host}.run(t).says(t, 1, "DIR/baton.yaml: … no such file or directory")
	})
	t.Run("directory", func(t *testing.T) {
		dir := t.TempDir()
		attempt{host: host, dir: dir, args: []string{"run", "--config", dir, "--state-dir", dir}}.run(t).says(t, 1, "DIR: … directory")
	})
	t.Run("no file named", func(t *testing.T) {
		attempt{host: host, args: []string{"run"}}.run(t).says(t, 2, "--config")
	})
}

// What the host does not allow, each with the line of the frontend.
func TestCannotServe(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		own := netip.AddrPortFrom(w.addr(w.Balancer), 80)
		at := func(capture string, vips ...netip.AddrPort) string {
			text := head + "capture: " + capture + "\nservices:\n"
			for i, vip := range vips {
				text += fmt.Sprintf("  - name: s%d\n    frontends:\n      - tcp://%s\n    backends: [%q]\n", i, vip, w.backend(0))
			}
			return text
		}
		try := func(config string, uid uint32) refusal {
			return attempt{host: w.Balancer, config: config, uid: uid}.run(t)
		}
		vip, other := w.vip, w.otherVIP()

		try(at("bind", vip), 0).says(t, 1, fmt.Sprintf("DIR/baton.yaml:6: … tcp://%s: … is not on this host", vip))
		try(at("auto", vip, own, other), nobody).says(t, 1,
			fmt.Sprintf("DIR/baton.yaml:6: … tcp://%s: … CAP_NET_ADMIN", vip),
			fmt.Sprintf("DIR/baton.yaml:10: … tcp://%s: … CAP_NET_BIND_SERVICE", own),
			fmt.Sprintf("DIR/baton.yaml:14: … tcp://%s: … CAP_NET_ADMIN", other))
		try(at("anyip", own), 0).says(t, 1, fmt.Sprintf("DIR/baton.yaml:6: … tcp://%s: … is an address of this host", own))

		holder, err := w.Balancer.Listen("tcp", own)
		if err != nil {
			t.Fatal(err)
		}
		inUse := fmt.Sprintf("DIR/baton.yaml:10: … tcp://%s: … in use by e2e.test (pid %d)", own, os.Getpid())
		try(at("auto", vip, own), 0).says(t, 1, inUse)
		holder.Close()
		taken := w.Balancer.Serve(80, testnet.Sink) // on the wildcard address
		try(at("auto", own, vip), 0).says(t, 1,     // the guard gives the VIP to a socket that is bound elsewhere
			fmt.Sprintf("DIR/baton.yaml:6: … tcp://%s: … in use by e2e.test (pid %d)", own, os.Getpid()))
		try(at("anyip", vip), 0).says(t, 1,
			fmt.Sprintf("DIR/baton.yaml:6: … tcp://%s: … in use by e2e.test (pid %d)", vip, os.Getpid()))
		taken.Close()

		// Without privileges what can run does run.
		b := launchAs(t, w.Balancer, nobody, w.at8080(own))
		b.waitServing()
		w.serveNamed()
		if _, err := w.Client.AskName(netip.AddrPortFrom(own.Addr(), 8080)); err != nil {
			t.Error(err)
		}
	})
}

func (w world) at8080(own netip.AddrPort) string {
	w.vip = netip.AddrPortFrom(own.Addr(), 8080)
	return w.service(nil)
}

// launchAs is launch for another user.
func launchAs(t *testing.T, host *testnet.Host, uid uint32, services string) *baton {
	t.Helper()
	b := prepare(t, host, t.TempDir(), services)
	asUser(t, b.cmd, uid, b.dir)
	b.run()
	return b
}

// What the API needs, and who else has it.
func TestCannotStart(t *testing.T) {
	w := world{Star: testnet.NewStar(t, 1), vip: netip.MustParseAddrPort("10.96.0.10:80")}
	services := w.service(nil)
	taken := w.Balancer.Serve(10249, testnet.Sink)
	attempt{host: w.Balancer, config: "admin: {socket: DIR/admin.sock, http: \"127.0.0.1:10249\"}\n" + services}.run(t).
		says(t, 1, "127.0.0.1:10249 … in use")
	taken.Close()

	// Directories that were made for it go with it.
	taken = w.Balancer.Serve(80, testnet.Sink)
	dir := t.TempDir()
	attempt{
		host: w.Balancer, dir: dir, config: "admin: {socket: DIR/run/a/admin.sock, http: \"\"}\n" + strings.Replace(services, w.vip.String(), w.Balancer.IP4.String()+":80", 1),
		args: []string{"run", "--config", filepath.Join(dir, "baton.yaml"), "--state-dir", filepath.Join(dir, "state/of/baton")},
	}.run(t).says(t, 1, w.Balancer.IP4.String()+":80 … in use")
	taken.Close()

	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "admin.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	attempt{host: w.Balancer, dir: dir, config: head + services}.run(t).says(t, 1, "DIR/admin.sock exists and is not a socket")

	b := start(t, w.Balancer, services)
	other := world{Star: w.Star, vip: w.otherVIP()}
	attempt{host: w.Balancer, config: head + other.service(nil)}.run(t).
		says(t, 1, fmt.Sprintf("pid %d (socket %s) already runs in this network namespace", b.cmd.Process.Pid, b.socket()))
	w.serveNamed()
	w.who(t) // the first one does not notice

	// In another namespace there may be one more, but not on the same socket.
	elsewhere := w.Net.Host("elsewhere")
	text := fmt.Sprintf("admin: {socket: %s, http: \"\"}\nservices: []\n", b.socket())
	attempt{host: elsewhere, config: text}.run(t).says(t, 1, fmt.Sprintf("%s: socket is in use by pid %d", b.socket(), b.cmd.Process.Pid))
	w.who(t)
}
