package bpf

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

func TestFeatureAnswers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		probe error
		want  error  // what the answer wraps; nil = present
		text  string // the whole answer; "" = present
	}{
		{"present", nil, nil, ""},
		{"lacking", fmt.Errorf("probe: %w", ebpf.ErrNotSupported), ErrNotSupported, "sk_lookup (Linux 5.9): not supported by this kernel"},
		{"no such system call", unix.ENOSYS, ErrNotSupported, "sk_lookup (Linux 5.9): not supported by this kernel"},
		{"not allowed", unix.EPERM, ErrPermission, "no permission to ask for sk_lookup: operation not permitted"},
		{"no memory", unix.ENOMEM, unix.ENOMEM, "ask for sk_lookup: cannot allocate memory"},
	} {
		f := Feature{Name: "sk_lookup", Since: "5.9", probe: func() error { return tt.probe }}
		err := f.Have()
		if !errors.Is(err, tt.want) || (err == nil) != (tt.text == "") || err != nil && err.Error() != tt.text {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.text)
		}
		if errors.Is(err, ErrNotSupported) && tt.want != ErrNotSupported {
			t.Errorf("%s: for certain, it says: %v", tt.name, err)
		}
	}
}

func TestExplain(t *testing.T) {
	lacking := Feature{Name: "sk_lookup", Since: "5.9", probe: func() error { return ebpf.ErrNotSupported }}
	unknown := Feature{Name: "sockmap", probe: func() error { return unix.EPERM }}
	for _, tt := range []struct {
		name  string
		err   error
		needs []Feature
		want  error
		not   error
	}{
		{"the kernel lacks something", unix.EINVAL, []Feature{unknown, lacking}, ErrNotSupported, ErrPermission},
		{"it does, and we may not either", unix.EPERM, []Feature{lacking}, ErrNotSupported, ErrPermission},
		{"not allowed", fmt.Errorf("load: %w", unix.EPERM), []Feature{unknown}, ErrPermission, ErrNotSupported},
		{"the verifier refuses", &ebpf.VerifierError{Cause: unix.EACCES}, nil, nil, ErrPermission},
		{"something else", unix.ENOMEM, nil, unix.ENOMEM, ErrPermission},
	} {
		err := explain(tt.err, tt.needs)
		if tt.want != nil && !errors.Is(err, tt.want) || errors.Is(err, tt.not) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestThisKernel says what the machine that runs the tests has: all of it, but for what is done without.
func TestThisKernel(t *testing.T) {
	testnet.RequireRoot(t)
	for _, f := range append(Features(), HandoffFeatures()...) {
		err := f.Have()
		if f.Without != "" && errors.Is(err, ErrNotSupported) {
			t.Logf("%v: %s", err, f.Without)
		} else if err != nil {
			t.Error(err)
		}
	}
}

// TestProbesOfHandoffLeaveNothing, and say when they may not ask.
func TestProbesOfHandoffLeaveNothing(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("a")
	h.Do(func() {
		for _, f := range HandoffFeatures() {
			_ = f.Have()
		}
	})
	if all, err := h.Netlink().LinkList(); err != nil || len(all) != 1 {
		t.Errorf("devices %v, %v", all, err)
	}
	if got := attached(t, h, "lo"); len(got) != 0 {
		t.Errorf("on lo there is %q", got)
	}
	without(t, unix.CAP_NET_ADMIN, func() {
		if err := featureRepair.Have(); !errors.Is(err, ErrPermission) {
			t.Errorf("TCP_REPAIR without CAP_NET_ADMIN: %v", err)
		}
	})
	without(t, unix.CAP_SYS_ADMIN, func() {
		for _, f := range []Feature{featureBPFFS} {
			if err := f.Have(); !errors.Is(err, ErrPermission) {
				t.Errorf("%s without CAP_SYS_ADMIN: %v", f.Name, err)
			}
		}
	})
}

func TestTryFlows(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("a")
	h.Do(func() {
		if lot, err := TryFlows(); lot != nil || err != nil {
			t.Errorf("%v, %v", lot, err)
		}
	})
	if all, err := h.Netlink().LinkList(); err != nil || len(all) != 1 {
		t.Errorf("devices %v, %v", all, err)
	}
}

// TestCapabilities says what a handoff takes.
func TestCapabilities(t *testing.T) {
	h := testnet.New(t).Host("a")
	for _, tc := range []struct {
		name string
		caps []int
		want string // "" = it works
	}{
		{"all that it takes", []int{unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_PERFMON}, ""},
		{"as before Linux 5.8", []int{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN}, ""},
		{"no CAP_PERFMON", []int{unix.CAP_BPF, unix.CAP_NET_ADMIN}, "needs CAP_PERFMON"},
		{"no CAP_BPF", []int{unix.CAP_NET_ADMIN, unix.CAP_PERFMON}, "needs CAP_BPF"},
		{"no CAP_NET_ADMIN", []int{unix.CAP_BPF, unix.CAP_PERFMON}, "needs CAP_BPF and CAP_NET_ADMIN"},
	} {
		onThreadWith(t, h, tc.caps, func() {
			lot, err := TryFlows()
			switch {
			case tc.want == "" && (lot != nil || err != nil):
				t.Errorf("%s: %v, %v", tc.name, lot, err)
			case tc.want != "" && (!errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n")):
				t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
			}
		})
	}
}

// onThreadWith runs f inside a host, on a thread with these capabilities alone.
func onThreadWith(t *testing.T, h *testnet.Host, caps []int, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		if err := unix.Setns(int(h.NS()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		for _, c := range caps {
			data[c/32].Effective |= 1 << (c % 32)
			data[c/32].Permitted |= 1 << (c % 32)
		}
		if err := unix.Capset(&hdr, &data[0]); err != nil {
			done <- err
			return
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestPinsLast(t *testing.T) {
	h := testnet.New(t).Host("a")
	stateDir := t.TempDir()
	for _, want := range []string{"/bpf, which will be mounted", "/bpf, which is mounted"} {
		if where, err := PinsLast(stateDir); where != stateDir+want || err != nil {
			t.Errorf("%q, %v, want %q", where, err, want)
		}
		t.Cleanup(func() { _ = unix.Unmount(bpffsPath(stateDir), unix.MNT_DETACH) })
		h.Do(func() {
			if _, err := MountBPFFS(stateDir); err != nil {
				t.Error(err)
			}
		})
	}
}
