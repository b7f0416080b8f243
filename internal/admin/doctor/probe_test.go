package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// fakeHost has the sysctls of a test, and every capability but those taken.
func fakeHost(t *testing.T, sysctls map[string]string, without ...int) *host {
	t.Helper()
	h := &host{proc: t.TempDir(), caps: ^uint64(0)}
	for name, value := range sysctls {
		path := filepath.Join(h.proc, "sys", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range without {
		h.caps &^= 1 << c
	}
	return h
}

func TestProbesOfSettings(t *testing.T) {
	type sys = map[string]string
	for _, tc := range []struct {
		name    string
		probe   func(*host) Finding
		sysctls sys
		without []int
		want    Answer
		text    string
	}{
		{"kernel", probeKernel, sys{"kernel/osrelease": "6.18.44-x"}, nil, Present, "Linux 6.18.44-x"},
		{"old kernel", probeKernel, sys{"kernel/osrelease": "5.4.0"}, nil, Absent, "use Linux 5.10"},
		{"first kernel", probeKernel, sys{"kernel/osrelease": "5.10"}, nil, Present, ""},
		{"odd kernel", probeKernel, sys{"kernel/osrelease": "tip"}, nil, Inconclusive, "tip"},
		{"no /proc", probeKernel, nil, nil, Inconclusive, "read sysctl kernel.osrelease"},
		{"net admin", probeNetAdmin, nil, nil, Present, "anyip"},
		{"no net admin", probeNetAdmin, nil, []int{unix.CAP_NET_ADMIN}, Absent, "setcap cap_net_admin+ep"},
		{"no net bind", probeNetBind, sys{"net/ipv4/ip_unprivileged_port_start": "1024"}, []int{unix.CAP_NET_BIND_SERVICE}, Absent, "ports below 1024"},
		{"no net bind, not needed", probeNetBind, sys{"net/ipv4/ip_unprivileged_port_start": "0"}, []int{unix.CAP_NET_BIND_SERVICE}, Present, "not needed"},
		{"no net raw", probeNetRaw, nil, []int{unix.CAP_NET_RAW}, Absent, "resets that end a flow"},
		{"backlog", probeBacklog, sys{"net/core/somaxconn": "4096"}, nil, Present, "4096"},
		{"small backlog", probeBacklog, sys{"net/core/somaxconn": "128"}, nil, Absent, "net.core.somaxconn=4096"},
		{"ports", probeLocalPorts, sys{"net/ipv4/ip_local_port_range": "32768\t60999"}, nil, Present, "28232"},
		{"few ports", probeLocalPorts, sys{"net/ipv4/ip_local_port_range": "60000\t60999"}, nil, Absent, "1000"},
		{"odd ports", probeLocalPorts, sys{"net/ipv4/ip_local_port_range": "1"}, nil, Inconclusive, "1 numbers"},
		{"no number", probeBacklog, sys{"net/core/somaxconn": "many"}, nil, Inconclusive, "not a number"},
		{"empty", probeBacklog, sys{"net/core/somaxconn": ""}, nil, Inconclusive, "is empty"},
		{"nonlocal bind off", probeNonlocalBind, sys{"net/ipv4/ip_nonlocal_bind": "0"}, nil, Absent, "configured addresses only"},
		{"nonlocal bind on", probeNonlocalBind, sys{"net/ipv4/ip_nonlocal_bind": "1", "net/ipv6/ip_nonlocal_bind": "1"}, nil, Present, ""},
		{"no IPv6", probeIPv6, nil, nil, Absent, "without IPv6"},
		{"IPv6 off", probeIPv6, sys{"net/ipv6/conf/all/disable_ipv6": "1"}, nil, Absent, "disable_ipv6=0"},
		{"keepalive", probeKeepalive, sys{"net/ipv4/tcp_keepalive_time": "7200", "net/ipv4/tcp_keepalive_intvl": "75", "net/ipv4/tcp_keepalive_probes": "9"},
			nil, Present, "7200 s, then 9 times every 75 s"},
		{"no right to anyip", probeAnyIP, nil, []int{unix.CAP_NET_ADMIN}, Absent, "CAP_NET_ADMIN"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := tc.probe(fakeHost(t, tc.sysctls, tc.without...))
			if f.Answer != tc.want || !strings.Contains(f.Detail+" "+f.Todo, tc.text) {
				t.Errorf("got %+v", f)
			}
			if f.Answer == Absent && f.Todo == "" {
				t.Error("absent, and not a word what to do")
			}
		})
	}
}

func TestProbeStateDir(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]Answer{
		dir: Present, filepath.Join(dir, "a", "b"): Present, filepath.Join(plain, "c"): Absent, "": Inconclusive,
	} {
		h := fakeHost(t, nil)
		h.o.StateDir = path
		if f := probeStateDir(h); f.Answer != want {
			t.Errorf("%q: %+v", path, f)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the probe left something: %v, %v", left, err)
	}
}

// TestProbesLeaveNothing runs every probe on a host and compares it afterwards.
func TestProbesLeaveNothing(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("a")
	before := routes(t, h)
	var r Report
	asked := false
	o := Options{
		StateDir: t.TempDir(),
		Probes:   []Probe{{Name: "more", Run: func() Finding { return Finding{Answer: Present, Detail: "yes"} }}},
		Guard: func() error {
			asked = true
			return loopbackUp()
		},
	}
	h.Do(func() { r = Examine(t.Context(), o) })
	if after := routes(t, h); after != before {
		t.Errorf("routes before\n%s\nafter\n%s", before, after)
	}
	if !asked || len(r.Probes) != len(probes)+1 || !r.Fine || len(r.Paths) != 4 {
		t.Errorf("%+v", r)
	}
	for _, f := range r.Probes {
		if f.Answer == Inconclusive || f.Detail == "" {
			t.Errorf("%+v", f)
		}
		switch f.Probe {
		case "anyip", "guard", "more", "splice", "loopback", "TCP_USER_TIMEOUT", "state directory":
			if f.Answer != Present {
				t.Errorf("%+v", f)
			}
		case "instance":
			if f.Answer != Absent {
				t.Errorf("%+v", f)
			}
		}
	}
}

func routes(t *testing.T, h *testnet.Host) string {
	t.Helper()
	all, err := h.Netlink().RouteList(nil, unix.AF_UNSPEC)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, r := range all {
		b.WriteString(r.String() + "\n")
	}
	return b.String()
}

// A container that is given a bpffs lacks no right to mount one.
func TestBPFFSIsThere(t *testing.T) {
	testnet.RequireRoot(t)
	h := fakeHost(t, nil, unix.CAP_SYS_ADMIN)
	h.o.StateDir = t.TempDir()
	pins := filepath.Join(h.o.StateDir, "bpf")
	if err := os.Mkdir(pins, 0o755); err != nil {
		t.Fatal(err)
	}
	if f := probeSysAdmin(h); f.Answer != Absent {
		t.Errorf("a plain directory: %+v", f)
	}
	if err := unix.Mount("bpf", pins, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(pins, 0) })
	if f := probeSysAdmin(h); f.Answer != Present || !strings.Contains(f.Detail, pins) {
		t.Errorf("a bpffs: %+v", f)
	}
}
