package testvm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// count is what "seq 1 n" writes.
func count(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// All of a machine's promises that can be kept in one boot.
func TestMachine(t *testing.T) {
	needMachine(t)
	sh := func(script string) []string { return []string{"sh", "-c", script} }
	cases := []struct {
		name     string
		command  Command
		code     int
		timedOut bool
		out, err string
	}{
		{name: "fine", command: Command{Args: sh("exit 0")}},
		{name: "failure", command: Command{Args: sh("exit 1")}, code: 1},
		{name: "other failure", command: Command{Args: sh("exit 3")}, code: 3},
		{name: "last code", command: Command{Args: sh("exit 255")}, code: 255},
		{name: "signal", command: Command{Args: sh("kill -9 $$")}, code: 137},
		{name: "no such program", command: Command{Args: []string{"/no/such/program"}}, code: 127},
		{name: "no program", command: Command{}, code: 127},
		{name: "too long", command: Command{Args: []string{"sleep", "600"}, Timeout: time.Second}, code: 137, timedOut: true},
		{name: "goes on", command: Command{Args: sh("echo on")}, out: "on\n"},
		{name: "both outputs", command: Command{Args: sh("echo out; echo err >&2")}, out: "out\n", err: "err\n"},
		{name: "any byte", command: Command{Args: sh(`printf '\000\001\377\r\n\n\026x'`)}, out: "\x00\x01\xff\r\n\n\x16x"},
		{name: "much", command: Command{Args: []string{"seq", "1", "200000"}}, out: count(200000)},
		{name: "opened again", command: Command{Args: sh("echo a >/dev/stdout; echo b >/dev/stderr; echo c >/dev/stderr")}, out: "a\n", err: "b\nc\n"},
		{name: "no input", command: Command{Args: []string{"cat"}}},
		{name: "left behind", command: Command{Args: sh("sleep 600 & echo started")}, out: "started\n"},
		{name: "nothing is left", command: Command{Args: sh("cat /proc/[0-9]*/comm | grep -c sleep")}, out: "0\n", code: 1},
		{name: "environment", command: Command{Args: sh(`echo "$HOME $A $PWD"`), Env: []string{"A=b c"}, Dir: "/root/deep/er"}, out: "/root b c /root/deep/er\n"},
		{name: "a file", command: Command{Args: []string{"cat", "/root/given/a"}}, out: "given\n"},
		{name: "root", command: Command{Args: sh("cat /proc/self/uid_map >/dev/null && id -u && hostname")}, out: "0\ntestvm\n"},
		{name: "file systems", command: Command{Args: sh(`for at in /proc /sys /dev /dev/pts /dev/shm /run /tmp /sys/fs/cgroup /sys/fs/bpf; do
			grep -q " $at " /proc/mounts || echo "no $at"; done; grep -E '^(cgroup2|bpf) ' /proc/mounts | cut -d' ' -f2`)}, out: "/sys/fs/cgroup\n/sys/fs/bpf\n"},
		{name: "links on demand", command: Command{Args: sh(`for type in veth bridge dummy ifb vxlan\ id\ 1\ dstport\ 4789 geneve\ id\ 1\ remote\ 127.0.0.1; do
			ip link add type $type || echo "no $type"; done; ip tuntap add mode tap; ip netns add other && ip netns exec other ip link | grep -c LOOPBACK`)}, out: "1\n"},
		{name: "nftables on demand", command: Command{Args: []string{"nft", `table inet x {
			flowtable f { hook ingress priority 0; }
			chain c { type filter hook forward priority 0; ct state established accept; meta l4proto tcp flow add @f; }
			chain n { type nat hook prerouting priority 0; meta nfproto ipv4 tcp dport 1 dnat ip to 127.0.0.1:2; }
		}`}}},
		{name: "modules", command: Command{Args: []string{"modprobe", "-a", "sctp", "nf_conntrack", "nf_flow_table", "act_bpf", "cls_bpf", "sch_netem", "tun"}}},
		{name: "files back", command: Command{Args: sh("mkdir -p /out/a; seq 1 100000 >/out/a/b; chmod 700 /out/a/b; ln -s /etc/passwd /out/link; : >/out/empty")}},
	}
	dir := t.TempDir()
	given := filepath.Join(dir, "given")
	if err := errors.Join(os.Mkdir(given, 0o755), os.WriteFile(filepath.Join(given, "a"), []byte("given\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	spec := Spec{
		Kernel: "6.1", Out: filepath.Join(dir, "out"), Timeout: 5 * time.Minute,
		Files: []File{{Source: given, Path: "/root/given"}},
		Tools: []string{"sh", "cat", "seq", "sleep", "grep", "cut", "id", "hostname", "ip", "nft", "mkdir", "chmod", "ln"},
	}
	outs, errs := make([]bytes.Buffer, len(cases)), make([]bytes.Buffer, len(cases))
	for i, tc := range cases {
		tc.command.Stdout, tc.command.Stderr = &outs[i], &errs[i]
		spec.Commands = append(spec.Commands, tc.command)
	}
	statuses, err := Run(t.Context(), spec)
	if err != nil || len(statuses) != len(cases) {
		t.Fatalf("%d of %d commands ended: %v", len(statuses), len(cases), err)
	}
	for i, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if s := statuses[i]; s.Code != tc.code || s.TimedOut != tc.timedOut || s.Elapsed > 2*time.Minute {
				t.Errorf("ended with %+v, want code %d, timed out %v", s, tc.code, tc.timedOut)
			}
			if out := outs[i].String(); out != tc.out {
				t.Errorf("wrote %d bytes, want %d: %.200q", len(out), len(tc.out), out)
			}
			if e := errs[i].String(); e != tc.err {
				t.Errorf("complained %.500q, want %q", e, tc.err)
			}
		})
	}
	for name, want := range map[string]string{"a/b": count(100000), "empty": ""} {
		b, err := os.ReadFile(filepath.Join(spec.Out, name))
		if err != nil || string(b) != want {
			t.Errorf("file %s came back with %d bytes, want %d: %v", name, len(b), len(want), err)
		}
	}
	if _, err := os.Lstat(filepath.Join(spec.Out, "link")); err == nil {
		t.Error("a symlink came back, and leads somewhere on the host")
	}
}

// What goes to the same writer arrives as it was written.
func TestMergedOutput(t *testing.T) {
	needMachine(t)
	for _, kernel := range []string{"6.1", "6.12"} {
		var both bytes.Buffer
		statuses, err := Run(t.Context(), Spec{
			Kernel: kernel, Tools: []string{"sh", "uname"},
			Commands: []Command{{Args: []string{"sh", "-c", "uname -r; echo 1; echo 2 >&2; echo 3; echo 4 >&2"}, Stdout: &both, Stderr: &both}},
		})
		if err != nil || len(statuses) != 1 {
			t.Fatal(statuses, err)
		}
		if got := both.String(); !strings.HasPrefix(got, kernel+".") || !strings.HasSuffix(got, "\n1\n2\n3\n4\n") {
			t.Errorf("linux %s: got %q", kernel, got)
		}
	}
}

// A machine that ends is not a command that fails.
func TestMachineEnds(t *testing.T) {
	needMachine(t)
	commands := func(last string) []Command {
		return []Command{{Args: []string{"sh", "-c", "exit 5"}}, {Args: []string{"sh", "-c", last}}, {Args: []string{"sh", "-c", "exit 6"}}}
	}
	for _, tc := range []struct {
		name, script string
		timeout      time.Duration
		want         error
		says         string
		least        int // commands that must have ended
	}{
		{"panic", "echo c >/proc/sysrq-trigger; sleep 600", 5 * time.Minute, ErrDied, "sysrq triggered crash", 1},
		{"power off", "echo o >/proc/sysrq-trigger; sleep 600", 5 * time.Minute, ErrDied, "", 1},
		{"timeout", "sleep 600", 8 * time.Second, ErrTimeout, "after 8s", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			statuses, err := Run(t.Context(), Spec{Kernel: "6.1", Commands: commands(tc.script), Tools: []string{"sh", "sleep"}, Timeout: tc.timeout})
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %v and %q", err, tc.want, tc.says)
			}
			if len(statuses) < tc.least || len(statuses) > 1 || len(statuses) == 1 && statuses[0].Code != 5 {
				t.Errorf("statuses: %+v", statuses)
			}
		})
	}
}

// Without what it is made of there is no machine, and nothing that could be taken
// for a status.
func TestNoMachine(t *testing.T) {
	needMachine(t)
	for _, tc := range []struct {
		name string
		spec Spec
		want error
		says string
	}{
		{"tool", Spec{Kernel: "6.1", Tools: []string{"no-such-tool"}}, nil, "no-such-tool"},
		{"file", Spec{Kernel: "6.1", Files: []File{{Source: "/no/such/file", Path: "/a"}}}, os.ErrNotExist, "/no/such/file"},
		{"path", Spec{Kernel: "6.1", Files: []File{{Source: "doc.go", Path: "a"}}}, os.ErrInvalid, "not absolute"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			statuses, err := Run(t.Context(), tc.spec)
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) || len(statuses) != 0 {
				t.Errorf("got %v, %v; want %v and %q", statuses, err, tc.want, tc.says)
			}
			if errors.Is(err, ErrDied) || errors.Is(err, ErrTimeout) {
				t.Error("that is said of a machine that there was not")
			}
		})
	}
}
